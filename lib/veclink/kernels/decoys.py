"""How many pairs of a round are right, learnt from decoys: what anchors are matched with when their partner is gone.

An anchor without its partner is an object that is on one side only, and whatever it is matched with is wrong: a
*decoy* (target-decoy search: Elias and Gygi 2007). Decoys show what wrong pairs look like, and their frequency how
many there are. If such objects find a partner at rate q, and a view matches N of n rows, R of them rightly,

    N = R + q (n - R)    so    R = (N - q n) / (1 - q)

Either side gives an estimate; they are averaged, each with the inverse of its variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Anchors are not drawn at random from the rows, and their q is a little higher: in trial draws with known truth R came
# out too low by the one share, give or take the other (no command prints it).
MISSED, TOLERANCE = 0.035, 0.035
# R is never known better than give or take this: a model that may believe in nothing learns nothing.
LEAST = 5.0


@dataclass(frozen=True)
class Trials:
    """The anchors of one side, asked without their partner.

    rows: of the side, that could be matched. anchors: that were asked. found: (f,) for each anchor that was matched at
    all, the share of its views that did, above 0 and at most 1.
    """

    rows: int
    anchors: int
    found: Floats


def right_matches(matched: float, sides: Sequence[Trials]) -> tuple[float, float]:
    """How many of the pairs that a view matches are right, and the standard deviation of that; infinite without trials.

    matched: N, the mean over views.
    """
    estimates, weights = [], []
    for side in sides:
        if not side.anchors:
            continue
        # One trial more than there were, half of it found: no rate is exactly 0 or 1.
        rate = (side.found.sum() + 0.5) / (side.anchors + 1)
        missed = (side.anchors - len(side.found)) * rate**2
        variance = (np.square(side.found - rate).sum() + missed + 0.25) / (side.anchors + 1) ** 2
        estimates.append((matched - rate * side.rows) / (1 - rate))
        spread = max(side.rows - matched, 1) / (1 - rate) ** 2  # dR / dq
        weights.append(1 / (variance * spread**2))
    if not estimates:
        return matched, float("inf")
    # The sides ask the same anchors; that they err together is not in the weights, hence not halved.
    deviation = float(np.sqrt(len(weights) / sum(weights)))
    right = float(np.clip(np.average(estimates, weights=weights) * (1 + MISSED), 0, matched))
    return right, max(float(np.hypot(deviation, TOLERANCE * right)), LEAST)
