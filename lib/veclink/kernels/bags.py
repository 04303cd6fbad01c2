"""Which views hold which anchor, and which judge it.

A view judges only rows that it does not hold (out of bag): a held pair would confirm itself. Every source row, anchor
or not, is held by equally many views and judged by all others, so that a pair's votes mean the same whether it is an
anchor or not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]


def row_bags(rows: int, views: int, share: float, key: tuple[int, ...]) -> Bools:
    """(rows, views): which view holds which source row.

    share: of the views, 0 to 1, see `held_by`. key: (random seed of the run, round number). A row's bags are the same
    however many rows there are.
    """
    rank = np.random.default_rng(key).random((rows, views), dtype=np.float32).argsort(axis=1, kind="stable")
    return rank < held_by(views, share)


def first_rows(rows: NDArray[np.int64], most: int, random_seed: int) -> NDArray[np.int64]:
    """Positions of at most `most` of some row numbers, in order; a row's chance is its own, whatever the others are."""
    if len(rows) <= most:
        return np.arange(len(rows))
    rank = np.random.default_rng([random_seed]).random(int(rows.max()) + 1)[rows]
    return np.sort(np.argsort(rank, kind="stable")[:most])


def held_by(views: int, share: float) -> int:
    """How many of the views hold a row: at least one; with two views or more one does not."""
    return min(max(1, round(share * views)), max(1, views - 1))
