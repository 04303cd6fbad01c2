"""Did a run take off? Views of a part of its links are asked for the rest, and for the seeds, which they do not know.

Seeds are right. Right links are found again about as often as seeds, and score about as well. Wrong ones are found much
less often, or find the seeds much less often, or lie well behind them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Standard deviations of what chance shows that a lead of the seeds is allowed.
CHANCE = 2


@dataclass(frozen=True)
class Recovery:
    """The take-off test: shares found again from one part of the pairs as anchors, 0 to 1.

    pairs: of the other part; None where they are too few to test. seeds: of the seeds in the clouds; None where there
    are none, where they took part or were not asked. seen: how many seeds that are. ahead: how often one of them has a
    better csls than a pair that was found again; None where there is none.
    """

    pairs: float | None
    seeds: float | None
    seen: int = 0
    ahead: float | None = None

    def took_off(self, recovery: float, seeds: float, ahead: float) -> bool:
        """Whether pairs and seeds are found again often enough, and pairs do not lie well behind seeds.

        recovery, seeds, ahead: the settings consensus.takeoff_*. The pairs' share counts in units of the seeds', of 1
        without seeds.
        """
        found = 1.0 if self.seeds is None else self.seeds
        if found < seeds or (self.pairs or 0.0) < recovery * found:
            return False
        # As many seeds deviate from one half by this, by chance (Mann and Whitney 1947, for many more links).
        return self.ahead is None or self.ahead - CHANCE / math.sqrt(12 * self.seen) <= ahead


def ahead(ones: NDArray[Any], others: NDArray[Any]) -> float | None:
    """How often one of the first is above one of the second, ties half, 0 to 1; None where either are none.

    ones: (p,), others: (q,). Half where they are alike (Mann and Whitney 1947, U / p q).
    """
    if not len(ones) or not len(others):
        return None
    rising = np.sort(others)
    below = np.searchsorted(rising, ones, "left") + np.searchsorted(rising, ones, "right")
    return float(below.mean() / 2 / len(others))
