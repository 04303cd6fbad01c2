"""What the confidences of a run say of its links as a whole, without any truth: precision, recall, shared objects.

Letters: p candidate pairs, one to one; r rounds that are averaged.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from veclink.kernels.decoys import DEVIATIONS, Estimate

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
Bools = NDArray[np.bool_]

# Standard deviation of what the model itself is off by, whatever the number of links: about the calibration errors in
# the quality table.
MODEL_ERROR = 0.01


@dataclass(frozen=True)
class Estimates:
    """precision and recall of the links, 0 to 1, and shared: the objects on both sides, seeds not among them."""

    precision: Estimate
    recall: Estimate
    shared: Estimate


def shared_by_seeds(right: Estimate, found: int, seeds: int) -> Estimate:
    """How many objects are shared, if a view that knows no seed matches `right` pairs rightly and finds `found` seeds.

    Seeds are right pairs that nobody chose by how easily they are matched: the share of them that is found is the
    share of all (capture and recapture: Petersen 1896, Lincoln 1930), with the posterior of Jeffreys' prior.
    """
    share = (found + 0.5) / (seeds + 1)
    spread = np.sqrt(share * (1 - share) / (seeds + 2)) / share
    reach = max(right.high - right.value, right.value - right.low) / DEVIATIONS
    value = right.value / share
    return _around(value, float(np.hypot(spread * value, reach / share)), np.inf)


def estimates(
    confidence: Floats, votes: Rows, by_round: Floats, kept: Bools, known: Estimate | None = None
) -> Estimates | None:
    """Estimates from (p,) confidences; None where nothing is kept.

    votes: (p,) views that proposed a pair. by_round: (p, r) confidences of the single rounds. kept: (p,) the links.
    known: what seeds say of the shared objects. Some pairs of unlike encoders are never matched, and only seeds tell.

    From below, and without seeds altogether, objects that no view has matched are counted by Chao's estimator (1984,
    "Nonparametric estimation of the number of classes in a population"): f1^2 / (2 f2), f_i the expected right pairs
    with i votes. It is a lower bound.
    """
    if not kept.any():
        return None
    doubt = confidence * (1 - confidence)
    links, right = int(kept.sum()), float(confidence[kept].sum())
    # Rounds that disagree on the links as a whole err as a whole.
    drift = float(by_round[kept].mean(axis=0).std(ddof=1)) if by_round.shape[1] > 1 else 0.0
    drift = float(np.hypot(drift, MODEL_ERROR))
    precision = _around(right / links, float(np.hypot(np.sqrt(doubt[kept].sum()) / links, drift)), 1.0)
    seen = float(confidence.sum())
    once, twice = (float(confidence[votes == i].sum()) for i in (1, 2))
    unseen = once**2 / (2 * twice) if twice > 0 else once * (once - 1) / 2 if once > 1 else 0.0
    ratio = once / twice if twice > 0 else 0.0
    chance = twice * (ratio**4 / 4 + ratio**3 + ratio**2 / 2)  # variance of the unseen, Chao 1987
    shared = _around(seen + unseen, float(np.sqrt(doubt.sum() + chance + (drift * seen) ** 2)), np.inf)
    if known is not None:
        shared = Estimate(*(max(a, b) for a, b in zip(astuple(known), astuple(shared), strict=True)))
    found = right / shared.value
    low, high = (right / edge if edge > 0 else 1.0 for edge in (shared.high, shared.low))
    return Estimates(precision, Estimate(min(found, 1.0), min(low, 1.0), min(high, 1.0)), shared)


def _around(value: float, deviation: float, most: float) -> Estimate:
    return Estimate(value, max(value - DEVIATIONS * deviation, 0.0), min(value + DEVIATIONS * deviation, most))
