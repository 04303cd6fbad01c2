"""Cells: parts of the common space, so that rows are compared only with what lies around them.

Centres are fitted on a sample of both clouds, mapped into the space of a round; every row is at home in the cell of the
nearest centre, and is compared with the rows of the `probes` cells nearest to its own (inverted file: Jegou et al.
2011, "Product quantization for nearest neighbor search", section IV, with both sides in cells). Parts of the sample are
cut again until none is too large, so that crowded regions get more and smaller cells.

Letters: n rows, r dimensions of the common space, c cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veclink.kernels.kmeans import spherical_kmeans

Matrix = NDArray[np.float32]
Rows = NDArray[np.int64]

# Parts that a part of the sample is cut into at most, and the steps of each cut: centres need not be perfect.
BRANCHES, STEPS = 16, 8
# Rows this near to their centre, in cosine, are all alike: no cut tells them apart.
ALIKE = 1e-6
BLOCK_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Homes:
    """The rows of one side by cell. order: (n,) row numbers, cell after cell, rising within each. starts: (c + 1,)."""

    order: Rows
    starts: Rows

    def rows(self, cells: Rows) -> Rows:
        """Row numbers at home in some cells, rising."""
        return np.sort(np.concatenate([self.order[self.starts[c] : self.starts[c + 1]] for c in cells]))


def cell_centres(sample: Matrix, most: int, rng: np.random.Generator) -> Matrix:
    """(c, r) unit centres such that no cell holds more than `most` rows of the sample, unless they are all alike.

    sample: (n, r) float32 unit rows, n at least 1.
    """
    centre = _centre(sample)
    if len(sample) <= most or (sample @ centre[0]).min() > 1 - ALIKE:
        return centre
    parts = min(BRANCHES, -(-len(sample) // most))
    _, labels = spherical_kmeans(sample, parts, rng, STEPS)
    return np.concatenate([cell_centres(sample[labels == i], most, rng) for i in range(parts)])


def _centre(rows: Matrix) -> Matrix:
    mean = rows.mean(axis=0, keepdims=True)
    centre: Matrix = mean / max(float(np.linalg.norm(mean)), np.finfo(np.float32).tiny)
    return centre


def home_cells(points: Matrix, centres: Matrix) -> NDArray[np.int32]:
    """(n,) cell of every row: the nearest centre, the lower of equally near ones. Memory beyond the result: 64 MiB."""
    out = np.empty(len(points), np.int32)
    block = max(1, BLOCK_BYTES // (4 * len(centres)))
    for start in range(0, len(points), block):
        part = slice(start, start + block)
        out[part] = (points[part] @ centres.T).argmax(axis=1)
    return out


def homes(cells: NDArray[np.int32], count: int) -> Homes:
    """Rows by cell. cells: (n,) of `home_cells`, -1 for rows that are in none. count: c."""
    placed = np.flatnonzero(cells >= 0)
    starts = np.concatenate([[0], np.cumsum(np.bincount(cells[placed], minlength=count))])
    return Homes(placed[np.argsort(cells[placed], kind="stable")], starts.astype(np.int64))


def cell_groups(sizes: Rows, most: int) -> list[Rows]:
    """Cells in groups of at most `most` rows, or of one cell. sizes: (c,) rows of each.

    Cells that `cell_centres` gives one after the other were cut from the same part of the sample: they are neighbours.
    """
    groups: list[list[int]] = [[]]
    held = 0
    for cell, size in enumerate(sizes.tolist()):
        if groups[-1] and held + size > most:
            groups.append([])
            held = 0
        groups[-1].append(cell)
        held += size
    return [np.array(group) for group in groups]


def nearest_cells(centres: Matrix, probes: int) -> Rows:
    """(c, p) cells nearest to each cell, itself first; p = min(probes, c)."""
    similarity = centres @ centres.T
    np.fill_diagonal(similarity, np.inf)
    order = np.argsort(-similarity, axis=1, kind="stable")
    near: Rows = order[:, : min(probes, len(centres))]
    return near
