"""From a round's candidate pairs to confidences, anchors and, over the last rounds, the answer.

Letters: p candidate pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veclink.kernels import evidence_model
from veclink.kernels.posterior import one_to_one, posterior_mean

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# With fewer decoys than this the model has nothing to hold on to, and the votes alone speak.
DECOYS_MIN = 10


@dataclass(frozen=True)
class Pairs:
    """Candidate pairs of one round, out of bag.

    source, target: (p,) int64 row numbers. votes of opportunities: (p,) views that proposed the pair, that could.
    features: (p, 5) means over the voting views: score (csls), source_lead, target_lead (of the score over the best
    other partner of either row), source_density, target_density (mean similarity to the nearest on the other side).
    """

    source: Rows
    target: Rows
    votes: Rows
    opportunities: Rows
    features: Floats

    def __len__(self) -> int:
        return len(self.source)

    def take(self, chosen: Rows | Bools) -> Pairs:
        """The pairs at some positions."""
        return Pairs(
            self.source[chosen],
            self.target[chosen],
            self.votes[chosen],
            self.opportunities[chosen],
            self.features[chosen],
        )


def confidences(pairs: Pairs, decoy: Bools) -> Floats:
    """(p,) probability that a pair is right; 0 for decoys, which are wrong by construction.

    decoy: (p,) pairs of a row whose partner is hidden. Where the round has too few of them, the posterior mean of the
    votes stands in.
    """
    votes, opportunities = pairs.votes.astype(np.float64), pairs.opportunities.astype(np.float64)
    guess = votes_alone(pairs)
    real = ~decoy
    if decoy.sum() >= DECOYS_MIN and real.any():
        share = evidence_model.vote_share(votes, opportunities)
        features = np.concatenate([share[:, None], pairs.features], axis=1)
        model = evidence_model.fit(features[real], features[decoy], guess[real])
        guess = model.probability(features)
    return np.where(real, guess, 0.0)


def votes_alone(pairs: Pairs) -> Floats:
    """(p,) posterior means of the votes: what is believed of a pair where there is no model yet."""
    return posterior_mean(pairs.votes, pairs.opportunities)


def confidence_floor(confidence: Floats, least: float, precision: float | None) -> float:
    """The confidence from which on pairs are links.

    confidence: (p,). least: no link lies below it. precision: the links' mean confidence reaches it (None: no such
    wish); as many links are kept as it allows.
    """
    if precision is None or not len(confidence):
        return least
    falling = np.sort(confidence)[::-1]
    enough = np.flatnonzero(np.cumsum(falling) / np.arange(1, len(falling) + 1) >= precision)
    # Where not even the surest pair reaches it, nothing does.
    return max(least, float(falling[enough[-1]])) if len(enough) else float("inf")


def agreement(pairs: Pairs, maps: int) -> float:
    """Share of the pairs a map proposes that all the others propose too, 0 to 1; 0 where there are none.

    Independent maps that are wrong are wrong in different ways.
    """
    proposed = int(pairs.votes.sum())
    return float(maps * (pairs.votes == maps).sum() / proposed) if proposed else 0.0


def first_anchors(pairs: Pairs, maps: int, share: float, least: int) -> Rows:
    """Positions of the pairs that every soft map proposed, the best `share` of them by their lead, at least `least`."""
    lead = pairs.features[:, 1:3].min(axis=1)
    agreed = np.flatnonzero(pairs.votes == maps)
    agreed = agreed[one_to_one(pairs.source[agreed], pairs.target[agreed], lead[agreed])]
    return agreed[: max(least, round(share * len(agreed)))]


def promoted(pairs: Pairs, confidence: Floats, floor: float, most: int) -> Rows:
    """Positions of the pairs to promote: one to one, at least `floor` sure, the `most` surest."""
    likely = np.flatnonzero(confidence >= floor)
    chosen = likely[one_to_one(pairs.source[likely], pairs.target[likely], confidence[likely])]
    return chosen[:most]


@dataclass(frozen=True)
class Judged:
    """A round's candidates with their confidence, and the rows it could not judge.

    hidden_source, hidden_target: rows of the round's hidden anchors, whichever of the two was hidden.
    """

    pairs: Pairs
    confidence: Floats
    hidden_source: Rows
    hidden_target: Rows


def average(rounds: Sequence[Judged]) -> tuple[Pairs, Floats]:
    """All candidates of some rounds with their mean confidence over the rounds that judged both their rows.

    A round that did not propose a pair counts as 0. Votes and opportunities are sums, features means weighted by votes.
    """
    key = [np.stack([r.pairs.source, r.pairs.target], axis=1) for r in rounds]
    unique, place = np.unique(np.concatenate(key), axis=0, return_inverse=True)
    place, n = place.ravel(), len(unique)
    source, target = unique[:, 0], unique[:, 1]

    def total(values: Floats) -> Floats:
        return np.asarray(np.bincount(place, weights=values, minlength=n), dtype=np.float64)

    votes = np.concatenate([r.pairs.votes for r in rounds])
    features = np.concatenate([r.pairs.features for r in rounds])
    opportunities = np.concatenate([r.pairs.opportunities for r in rounds])
    judged = np.zeros(n)
    for r in rounds:
        judged += ~(np.isin(source, r.hidden_source) | np.isin(target, r.hidden_target))
    weight = total(votes.astype(np.float64))
    means = np.stack([total(votes * features[:, i]) / weight for i in range(features.shape[1])], axis=1)
    confidence = total(np.concatenate([r.confidence for r in rounds])) / np.maximum(judged, 1)
    pairs = Pairs(source, target, weight.astype(np.int64), total(opportunities).astype(np.int64), means)
    return pairs, np.asarray(confidence, dtype=np.float64)
