"""From a round's candidate pairs to confidences, anchors and, over the last rounds, the answer.

Letters: p candidate pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veclink.kernels import evidence_model
from veclink.kernels.decoys import Trials, right_matches
from veclink.kernels.evidence_model import Level
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

    no_target: pairs whose source has lost its target, no_source: the other way round. anchors: (a, 2) that were asked.
    """

    no_target: Pairs
    no_source: Pairs
    anchors: Rows

    def __len__(self) -> int:
        return len(self.no_target) + len(self.no_source)

    def trials(self, rows: tuple[int, int]) -> list[Trials]:
        """Both sides' trials. rows: of the source and the target cloud that could be matched."""
        lonely = (self.no_target, self.no_target.source), (self.no_source, self.no_source.target)
        out = []
        for count, (pairs, own) in zip(rows, lonely, strict=True):
            _, place = np.unique(own, return_inverse=True)
            found = np.bincount(place, weights=pairs.votes / pairs.opportunities).astype(np.float64)
            out.append(Trials(count, len(self.anchors), found))
        return out


@dataclass(frozen=True)
class Evidence:
    """What the views of one round, or of several, have found."""

    pairs: Pairs
    decoys: Decoys


def together(rounds: Sequence[Evidence]) -> Evidence:
    """The evidence of some rounds as if it were one's: votes and opportunities are sums, features means over votes.

    Decoys are those of the anchors that every round has asked: they had as many chances as any other row.
    """
    asked, times = np.unique(np.concatenate([r.decoys.anchors for r in rounds]), axis=0, return_counts=True)
    anchors = asked[times == len(rounds)]
    # Views that could propose a pair: in a round as many for one pair as for another.
    parts = [(r.pairs, r.decoys.no_target, r.decoys.no_source) for r in rounds]
    chances = sum(max(int(p.opportunities.max(initial=0)) for p in found) for found in parts)
    pairs, no_target, no_source = zip(*parts, strict=True)
    lonely = Decoys(
        _summed([p.take(np.isin(p.source, anchors[:, 0])) for p in no_target], chances),
        _summed([p.take(np.isin(p.target, anchors[:, 1])) for p in no_source], chances),
        anchors,
    )
    return Evidence(_summed(pairs, chances), lonely)


def _summed(rounds: Sequence[Pairs], chances: int) -> Pairs:
    keys = np.concatenate([np.stack([p.source, p.target], axis=1) for p in rounds])
    unique, place = np.unique(keys, axis=0, return_inverse=True)
    votes = np.concatenate([p.votes for p in rounds])
    features = np.concatenate([p.features for p in rounds])
    weight = np.bincount(place.ravel(), weights=votes, minlength=len(unique))
    sums = [np.bincount(place.ravel(), weights=votes * f, minlength=len(unique)) for f in features.T]
    means = np.stack(sums, axis=1) / weight[:, None]
    return Pairs(unique[:, 0], unique[:, 1], weight.astype(np.int64), np.full(len(unique), chances), means)


@dataclass(frozen=True)
class Judged:
    """Pairs with the probability, (p,), that they are right.

    decoys: (q,) what the same model would believe of the decoys, were they pairs. by_trials: (q,) wrong pairs that a
    decoy stands for, by how often anchors without partner find somebody.
    """

    pairs: Pairs
    confidence: Floats
    decoys: Floats
    by_trials: Floats

    @property
    def by_model(self) -> float:
        """Wrong pairs that a decoy stands for, by the confidences."""
        return float((1 - self.confidence).sum()) / max(len(self.decoys), 1)

    def wrong_from(self, floor: float) -> tuple[float, float]:
        """Wrong pairs of at least this confidence as the decoys count them, and the standard deviation of the count.

        In doubt are the decoys' number, and whether the model or the trials are right: half of what they differ by.
        """
        passed = self.decoys >= floor
        count = self.by_model * int(passed.sum())
        few = self.by_model * math.sqrt(int(passed.sum()) + 1)
        return count, math.hypot(few, float(self.by_trials[passed].sum() - count) / 2)

    def of(self, pairs: Pairs) -> Floats:
        """(p,) confidences of some pairs; 0 for those that are not among the judged."""
        keys = [np.stack([p.source, p.target], axis=1) for p in (self.pairs, pairs)]
        _, place = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
        known = np.zeros(len(place))
        known[place.ravel()[: len(self.pairs)]] = self.confidence
        return known[place.ravel()[len(self.pairs) :]]


def judge(found: Evidence, rows: tuple[int, int], evidence_from: str = "bounded") -> Judged:
    """The probability that a pair is right, for all pairs, from the evidence of a round or of some together.

    rows: of the source and the target cloud that could be matched. evidence_from: `bounded`, `free` (without what
    decoys say of how many are right) or `votes` alone. With too few decoys the posterior mean of the votes stands in.
    """
    pairs, decoys = found.pairs, found.decoys
    share = pairs.votes / pairs.opportunities
    right, deviation = right_matches(float(share.sum()), decoys.trials(rows))
    confidence, lonely = (
        votes_alone(pairs),
        np.concatenate([votes_alone(d) for d in (decoys.no_target, decoys.no_source)]),
    )
    if evidence_from != "votes" and len(decoys) >= DECOYS_MIN and len(pairs):
        level = Level(share, right, deviation) if evidence_from == "bounded" else None
        features = evidence(pairs)
        wrong = np.concatenate([evidence(decoys.no_target), evidence(decoys.no_source)])
        model = evidence_model.fit(features, wrong, confidence, level=level)
        confidence, lonely = model.probability(features), model.probability(wrong)
    # As many lonely rows as there are on a side for each that was asked; both sides count every wrong pair, hence half.
    sides = zip(rows, (decoys.no_target, decoys.no_source), strict=True)
    by_trials = [np.full(len(found), max(n - right, 0) / 2 / max(len(decoys.anchors), 1)) for n, found in sides]
    return Judged(pairs, confidence, lonely, np.concatenate(by_trials))


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
