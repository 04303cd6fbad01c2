"""What the confidences of a run say of its links as a whole, without any truth: precision, recall, shared objects.

Letters: p candidate pairs, one to one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
Bools = NDArray[np.bool_]

# An interval reaches this many standard deviations to either side: about 95 %.
DEVIATIONS = 2.0
# Standard deviation of what the model itself is off by, whatever the number of links: about the calibration errors in
# the quality table.
MODEL_ERROR = 0.01


@dataclass(frozen=True)
class Estimate:
    """A value and the interval that it is believed to lie in."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Estimates:
    """precision and recall of the links, 0 to 1, and shared: the objects on both sides, seeds not among them."""

    precision: Estimate
    recall: Estimate
    shared: Estimate

    def report(self) -> dict[str, float | list[float] | None]:
        """Values and intervals by name, for the report."""
        values = {"precision": self.precision, "recall": self.recall, "shared": self.shared}
        report: dict[str, float | list[float] | None] = {name: e.value for name, e in values.items()}
        return report | {f"{name}_interval": [e.low, e.high] for name, e in values.items()}


def shared_by_seeds(right: float, slack: float, found: int, seeds: int) -> Estimate:
    """How many objects are shared, if a view that knows no seed matches `right` pairs rightly and finds `found` seeds.

    Seeds are right pairs that nobody chose by how easily they are matched: the share of them that is found is the
    share of all (capture and recapture: Petersen 1896, Lincoln 1930), with Wilson's interval (1927). slack: standard
    deviation of `right`. Its reach is added, not squared with the other: where all seeds are found, a share of 1 is an
    end that much of the chance lies at.
    """
    share, low, high = _wilson(found, seeds)
    value, reach = right / share, DEVIATIONS * float(np.hypot(slack, MODEL_ERROR * right)) / share
    return Estimate(value, max(right / high - reach, 0.0), right / low + reach)


def _wilson(found: int, trials: int) -> tuple[float, float, float]:
    """A share, half a case added on either side, and its interval."""
    z = DEVIATIONS
    middle = (found + z**2 / 2) / (trials + z**2)
    reach = z / (trials + z**2) * float(np.sqrt(found * (trials - found) / trials + z**2 / 4))
    # Never 0: something is always shared.
    low = max(middle - reach, 0.5 / (trials + 1))
    return (found + 0.5) / (trials + 1), low, middle + reach


def estimates(
    confidence: Floats, votes: Rows, kept: Bools, slack: float, most: float, known: Estimate | None = None
) -> Estimates | None:
    """Estimates from (p,) confidences; None where nothing is kept.

    votes: (p,) views that proposed a pair. kept: (p,) the links. slack: standard deviation of the number of wrong links
    for want of decoys: what the model learnt from a few that came so far is off for all links together. most: objects
    that can be shared at all, the rows of the smaller cloud.
    known: what seeds say of the shared objects. Some pairs of unlike encoders are never matched, and only seeds tell.

    Without seeds, objects that no view has matched are counted by Chao's estimator (1984, "Nonparametric estimation of
    the number of classes in a population"): f1^2 / (2 f2), f_i the expected right pairs with i votes. It is a lower
    bound. Where no pair could be seen twice nothing tells of the unseen.
    """
    if not kept.any():
        return None
    doubt = confidence * (1 - confidence)
    links, right = int(kept.sum()), float(confidence[kept].sum())
    drift = float(np.hypot(slack / links, MODEL_ERROR))
    deviation = float(np.hypot(np.sqrt(doubt[kept].sum()) / links, drift))
    precision = _around(right / links, deviation, 1.0)
    shared = _unseen_too(confidence, votes, drift) if known is None else known
    shared = _at_least(right, DEVIATIONS * drift * links, _at_most(most, shared))
    return Estimates(precision, _part(right, DEVIATIONS * deviation * links, shared), shared)


def _at_least(right: float, reach: float, shared: Estimate) -> Estimate:
    """The shared objects, known that `right`, give or take `reach`, were found: what lies below cannot be.

    A value below is replaced by the mean of the normal distribution's part above (its spread: that of the upper half).
    """
    value, spread = shared.value, (shared.high - shared.value) / DEVIATIONS
    if value < right:
        value = max(right, _mean_above(right, value, spread)) if spread > 0 else right
    return Estimate(value, max(shared.low, right - reach, 0.0), max(shared.high, value))


def _at_most(most: float, shared: Estimate) -> Estimate:
    return Estimate(*(min(x, most) for x in (shared.value, shared.low, shared.high)))


def _mean_above(floor: float, mean: float, spread: float) -> float:
    """Mean of the part of a normal distribution above a floor; the mean itself where next to nothing lies above."""
    z = (floor - mean) / spread
    above = math.erfc(z / math.sqrt(2)) / 2
    return mean + spread * math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) / above if above > 0 else mean


def _part(right: float, reach: float, shared: Estimate) -> Estimate:
    """The share that `right`, give or take `reach`, is of the shared objects, 0 to 1; both are in doubt."""
    high = (right + reach) / shared.low if shared.low > 0 else 1.0
    return Estimate(min(right / shared.value, 1.0), max(right - reach, 0.0) / shared.high, min(high, 1.0))


def _unseen_too(confidence: Floats, votes: Rows, drift: float) -> Estimate:
    seen, doubt = float(confidence.sum()), float((confidence * (1 - confidence)).sum())
    if votes.max(initial=0) < 2:
        return replace(_around(seen, float(np.hypot(np.sqrt(doubt), drift * seen)), np.inf), high=np.inf)
    once, twice = (float(confidence[votes == i].sum()) for i in (1, 2))
    unseen = once**2 / (2 * twice) if twice > 0 else once * (once - 1) / 2 if once > 1 else 0.0
    ratio = once / twice if twice > 0 else 0.0
    chance = twice * (ratio**4 / 4 + ratio**3 + ratio**2 / 2)  # variance of the unseen, Chao 1987
    return _around(seen + unseen, float(np.sqrt(doubt + chance + (drift * seen) ** 2)), np.inf)


def _around(value: float, deviation: float, most: float) -> Estimate:
    return Estimate(value, max(value - DEVIATIONS * deviation, 0.0), min(value + DEVIATIONS * deviation, most))
