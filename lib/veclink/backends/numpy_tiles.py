"""Exact search with NumPy alone, tile by tile. The reference the other engines are tested against."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TILE_BYTES = 32 * 2**20  # one tile of similarities; small enough for the last-level cache of a server


def nearest(
    queries: NDArray[np.float32], base: NDArray[np.float32], k: int, threads: int = 1
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The k base rows of largest inner product of every query, best first; equal ones in row order.

    `threads` is accepted for the contract; NumPy's BLAS takes its thread count from the environment.
    """
    block = max(1, TILE_BYTES // (4 * len(base)))
    similarity = np.empty((len(queries), k), dtype=np.float32)
    rows = np.empty((len(queries), k), dtype=np.int64)
    for start in range(0, len(queries), block):
        tile = queries[start : start + block] @ base.T
        part = slice(start, start + len(tile))
        # A stable sort of the negated tile puts equal similarities in row order, which argpartition would not.
        rows[part] = _top(tile, k)
        similarity[part] = np.take_along_axis(tile, rows[part], axis=1)
    return similarity, rows


def _top(tile: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    if k < tile.shape[1]:
        kth = np.partition(tile, -k, axis=1)[:, -k]
        # Entries above the k-th value are in; of those equal to it, the lowest rows fill the list.
        masked = np.where(tile >= kth[:, None], tile, -np.inf)
        return np.argsort(-masked, axis=1, kind="stable")[:, :k]
    return np.argsort(-tile, axis=1, kind="stable")
