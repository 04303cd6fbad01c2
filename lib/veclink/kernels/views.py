"""How many views a round has, how large they are, and which anchors each holds.

Source: vector-linking paper, section 4 ("View sampling", "View scheduling") and appendix B.1, B.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from veclink.kernels.bags import row_bags
from veclink.kernels.spaces import Comparison

Matrix = NDArray[np.float32]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Schedule:
    """Views of one round: how many, and how many anchors each holds (seeds included)."""

    views: int
    size: int


@dataclass(frozen=True)
class View:
    """One anchor subset. `anchors` are positions among the anchors that are not seeds; every view holds all seeds.

    `count` views of the round are this same subset; it is evaluated once and votes `count` times.
    """

    number: int
    anchors: Rows
    count: int


@dataclass(frozen=True)
class Anchors:
    """Known and promoted pairs. Seeds carry their vectors (they may lie in neither cloud), the others row numbers.

    seed_source, seed_target: (s, d) unit rows, paired by position. seed_rows: (s, 2) row numbers of the seeds that lie
    in the clouds, (0, 2) where none does. rows: (p, 2) row numbers of the promoted pairs, seeds not included.
    """

    seed_source: Matrix
    seed_target: Matrix
    seed_rows: Rows
    rows: Rows

    def __len__(self) -> int:
        return len(self.seed_source) + len(self.rows)

    def keep_seeds(self, kept: NDArray[np.bool_]) -> Anchors:
        """The same with some of the seeds, by (s,) flags."""
        rows = self.seed_rows[kept] if len(self.seed_rows) else self.seed_rows
        return replace(self, seed_source=self.seed_source[kept], seed_target=self.seed_target[kept], seed_rows=rows)

    def vectors(self, view: View, clouds: tuple[Matrix, Matrix]) -> tuple[Matrix, Matrix]:
        """The view's anchors on each side: the seeds first, then its promoted pairs."""
        chosen = self.rows[view.anchors]
        return (
            np.concatenate([self.seed_source, clouds[0][chosen[:, 0]]]),
            np.concatenate([self.seed_target, clouds[1][chosen[:, 1]]]),
        )


@dataclass(frozen=True)
class RoundViews:
    """The views of one consensus round, and how they compare.

    bag_share: share of the views that hold a source row; the others judge it, and ask its anchor without the partner.
    None: every view judges every row, and there are no decoys.
    """

    views: list[View]
    how: Comparison
    bag_share: float | None

    def comparison(self, number: int) -> Comparison:
        """How one of the views compares: its random choices are its own."""
        return replace(self.how, key=(*self.how.key, self.views[number].number))

    def held(self, rows: int) -> NDArray[np.bool_] | None:
        """(rows, views): which view holds which source row."""
        return None if self.bag_share is None else row_bags(rows, len(self.views), self.bag_share, self.how.key)


def schedule(anchors: int, seeds: int, views_initial: int, fraction: float, growth: float, size_min: int) -> Schedule:
    """Number and size of views; as anchors grow, views become more and relatively smaller.

    sf = 1 + growth ln(anchors / seeds), views = ceil(views_initial sf), size = ceil(fraction anchors / sf) >= size_min.
    anchors: all current anchors, seeds included (at least 1). Natural logarithm.
    """
    scale = 1 + growth * math.log(anchors / max(seeds, 1))
    views = math.ceil(views_initial * scale)
    size = max(size_min, math.ceil(fraction * anchors / scale))
    return Schedule(views, size)


def farthest_points(vectors: Matrix, start: int, size: int) -> Rows:
    """Greedy farthest-point sampling under cosine distance (Gonzalez 1985).

    vectors: (p, d) float32 unit rows. Returns (min(size, p),) positions, the first is `start`; ties go to the lower.
    """
    size = min(size, len(vectors))
    chosen = np.empty(size, dtype=np.int64)
    nearest = np.full(len(vectors), np.inf, dtype=np.float32)
    pick = start
    for i in range(size):
        chosen[i] = pick
        np.minimum(nearest, 1 - vectors @ vectors[pick], out=nearest)
        nearest[pick] = -np.inf  # never again, even where distances are rounding noise below zero
        pick = int(nearest.argmax())
    return chosen


def two_halves(pairs: int, random_seed: int) -> list[View]:
    """Two views that hold a random half of the pairs each: every pair is left out once and can be found again."""
    order = np.random.default_rng([random_seed, pairs]).permutation(pairs)
    return [View(i, np.sort(half), 1) for i, half in enumerate(np.array_split(order, 2))]


def plan_views(vectors: Matrix, seeds: int, plan: Schedule, random_seed: int, round_number: int) -> list[View]:
    """The views of one round, drawn from the anchors that are not seeds.

    vectors: (p, d) source-side vectors of those anchors. Each view adds `plan.size - seeds` of them to the seeds, by
    farthest-point sampling from a pool of anchors not yet used in this round, refilled when empty.
    Random starts are keyed by (random_seed, round_number, view), so any view can be drawn again.
    """
    extra = min(max(0, plan.size - seeds), len(vectors))
    if extra in (0, len(vectors)):  # every view would be the same one
        return [View(0, np.arange(extra, dtype=np.int64), plan.views)]
    pool = np.arange(len(vectors))
    views = []
    for number in range(plan.views):
        rng = np.random.default_rng([random_seed, round_number, number])
        chosen = np.empty(0, dtype=np.int64)
        while len(chosen) < extra:
            if not len(pool):
                pool = np.setdiff1d(np.arange(len(vectors)), chosen)
            start = int(rng.integers(len(pool)))
            taken = pool[farthest_points(vectors[pool], start, extra - len(chosen))]
            pool = np.setdiff1d(pool, taken)
            chosen = np.concatenate([chosen, taken])
        views.append(View(number, np.sort(chosen), 1))
    return views


def contains(pairs: Rows, wanted: Rows) -> NDArray[np.bool_]:
    """For every wanted (source, target) pair, whether it is among `pairs`."""
    joined = np.concatenate([pairs, wanted])
    _, key = np.unique(joined, axis=0, return_inverse=True)
    return np.isin(key[len(pairs) :], key[: len(pairs)])
