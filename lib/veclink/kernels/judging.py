"""From a round's candidate pairs to confidences, anchors and, over the last rounds, the answer.

Letters: p candidate pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veclink.kernels import evidence_model
from veclink.kernels.decoys import Trials, right_matches
from veclink.kernels.evidence_model import Bounds
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


@dataclass(frozen=True)
class Decoys:
    """What anchors are matched with once their partner is gone (kernels/decoys.py), summed over views.

    no_target: pairs whose source has lost its target, no_source: the other way round. anchors: that were asked.
    """

    no_target: Pairs
    no_source: Pairs
    anchors: int

    def trials(self, rows: tuple[int, int]) -> list[Trials]:
        """Both sides' trials. rows: of the source and the target cloud that could be matched."""
        lonely = (self.no_target, self.no_target.source), (self.no_source, self.no_source.target)
        out = []
        for count, (pairs, own) in zip(rows, lonely, strict=True):
            _, place = np.unique(own, return_inverse=True)
            found = np.bincount(place, weights=pairs.votes / pairs.opportunities).astype(np.float64)
            out.append(Trials(count, self.anchors, found))
        return out


def confidences(pairs: Pairs, decoys: Decoys, rows: tuple[int, int], evidence_from: str = "bounded") -> Floats:
    """(p,) probability that a pair is right, from the round's evidence.

    rows: of the source and the target cloud that could be matched. evidence_from: `bounded`, `free` (no bounds on how
    many are right) or `votes` alone. Where the round has too few decoys, the posterior mean of the votes stands in.
    """
    guess = votes_alone(pairs)
    if evidence_from == "votes" or len(decoys.no_target) + len(decoys.no_source) < DECOYS_MIN or not len(pairs):
        return guess
    share = pairs.votes / pairs.opportunities
    right = right_matches(float(share.sum()), decoys.trials(rows))
    bounds = Bounds(share, right.low, right.high) if evidence_from == "bounded" else None
    features = evidence(pairs)
    wrong = np.concatenate([evidence(decoys.no_target), evidence(decoys.no_source)])
    model = evidence_model.fit(features, wrong, guess, bounds)
    return model.probability(features)


def evidence(pairs: Pairs) -> Floats:
    """(p, 6) what the model sees, in the order of evidence_model.FEATURES."""
    share = evidence_model.vote_share(pairs.votes.astype(np.float64), pairs.opportunities.astype(np.float64))
    return np.concatenate([share[:, None], pairs.features], axis=1)


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
    """A round's candidates with their confidence, (p,)."""

    pairs: Pairs
    confidence: Floats


def together(rounds: Sequence[Judged]) -> tuple[Pairs, Floats]:
    """All candidates of some rounds, p of them, and (p, rounds) their confidences; 0 where a round did not propose one.

    Votes and opportunities are sums, features means weighted by votes.
    """
    key = [np.stack([r.pairs.source, r.pairs.target], axis=1) for r in rounds]
    unique, place = np.unique(np.concatenate(key), axis=0, return_inverse=True)
    place, n = place.ravel(), len(unique)

    def total(values: Floats) -> Floats:
        return np.asarray(np.bincount(place, weights=values, minlength=n), dtype=np.float64)

    votes = np.concatenate([r.pairs.votes for r in rounds])
    features = np.concatenate([r.pairs.features for r in rounds])
    opportunities = np.concatenate([r.pairs.opportunities for r in rounds])
    weight = total(votes.astype(np.float64))
    means = np.stack([total(votes * features[:, i]) / weight for i in range(features.shape[1])], axis=1)
    by_round = np.zeros((n, len(rounds)))
    by_round[place, np.repeat(np.arange(len(rounds)), [len(r.pairs) for r in rounds])] = np.concatenate(
        [r.confidence for r in rounds]
    )
    pairs = Pairs(unique[:, 0], unique[:, 1], weight.astype(np.int64), total(opportunities).astype(np.int64), means)
    return pairs, by_round
