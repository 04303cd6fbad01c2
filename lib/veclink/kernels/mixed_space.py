"""Signs that one table holds the output of two encoders.

Nothing in a single vector tells. Two facts about a sample do, and both must hold:

1. The graph of nearest neighbours falls into two parts with hardly an edge between them. (Two encoders of one dimension
   use unrelated axes, so a vector's neighbours are all from its own encoder.) Far-apart subjects do this as well.
2. The two parts vary along unrelated directions. With C the covariance of a part scaled to trace 1, d * tr(C1 C2) is 1
   for unrelated parts (chance), and greater if they share directions: an encoder uses its axes unevenly, whatever the
   subject. Read against the same figure for two halves of one part: a part without structure of its own proves nothing.

Partition by the normalised cut: Shi and Malik (2000); its eigenvectors by Lanczos' method.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Measured on MiniLM, MPNet and USE embeddings of three corpora, 200 to 2,000 rows, 6 to 50 % of the minority encoder:
# one encoder, one corpus: cut 0.14 and more, shared 0.24 and more (36 samples);
# one encoder, two corpora: cut 0.10 and less, but shared 0.087 and more (27 samples);
# two encoders: cut 0.15 and less, shared 0.013 and less (81 samples).
CUT_MAX = 0.2
SHARED_MAX = 0.04
# Below this, the halves of one part agree hardly better than chance and the comparison means nothing.
OWN_EXCESS_MIN = 0.25
MINORITY_MIN = 0.05
ROWS_MIN = 100
# In so few dimensions two regions of one cloud can vary along unrelated directions.
DIM_MIN = 8

_VECTORS = 6
_STEPS = 80
_EXHAUSTED = 1e-10

Unit = NDArray[np.float32]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Split:
    """The most telling division of a sample in two parts of at least MINORITY_MIN.

    cut: share of the smaller part's neighbour edges that leave it, [0, 1]. shared: how much of what the halves of one
    part have in common beyond chance, the two parts have in common too (about 0 for two encoders, 1 for one).
    minority: share of rows in the smaller part.
    """

    cut: float
    shared: float
    minority: float

    @property
    def suspect(self) -> bool:
        """Whether the sample looks like two encoders."""
        return self.cut <= CUT_MAX and self.shared <= SHARED_MAX


def inspect(unit: Unit, k: int = 10) -> Split | None:
    """Look for two encoders among (n, dim) unit rows without exact duplicates; n up to a few thousand.

    Returns None where the sample is too small to say (under ROWS_MIN rows or DIM_MIN dimensions) or has no such
    division. Deterministic.
    """
    if len(unit) < ROWS_MIN or unit.shape[1] < DIM_MIN:
        return None
    near = neighbours(unit, k)
    keep = _large_parts(near, max(2, int(len(unit) * MINORITY_MIN)))
    if keep.sum() < ROWS_MIN:
        return None
    if not keep.all():
        # Small islands (near copies of one row) would be cheaper to cut off than the part that is looked for.
        unit = unit[keep]
        near = neighbours(unit, k)
    cuts = sorted(_sweep_cuts(near), key=lambda found: found[0])
    # A cut between subjects may be cheaper than the one between encoders, so every cheap one is looked at.
    cheap = [found for found in cuts if found[0] <= CUT_MAX] or cuts[:1]
    splits = [Split(cut, _shared(unit[p], unit[~p]), float(min(p.mean(), 1 - p.mean()))) for cut, p in cheap]
    return min(splits, key=lambda split: split.shared)


def neighbours(unit: Unit, k: int, block: int = 512) -> Ints:
    """(n, min(k, n - 1)) row numbers of the nearest other rows by cosine, in no order. Holds block x n scores."""
    n = len(unit)
    k = min(k, n - 1)
    found = np.empty((n, k), np.int64)
    for start in range(0, n, block):
        scores = unit[start : start + block] @ unit.T
        scores[np.arange(len(scores)), np.arange(start, start + len(scores))] = -np.inf
        found[start : start + block] = np.argpartition(scores, n - k, axis=1)[:, n - k :]
    return found


def _edges(near: Ints) -> tuple[Ints, Ints]:
    """Both directions of every neighbour edge; an edge found from both ends counts twice."""
    n, k = near.shape
    rows, others = np.repeat(np.arange(n), k), near.ravel()
    return np.concatenate([rows, others]), np.concatenate([others, rows])


def _large_parts(near: Ints, smallest: int) -> Bools:
    """(n,) True for rows in a connected part of at least `smallest` rows."""
    rows, others = _edges(near)
    label = np.arange(len(near))
    while True:
        lowest = label.copy()
        np.minimum.at(lowest, rows, label[others])
        lowest = lowest[lowest]
        if (lowest == label).all():
            break
        label = lowest
    return np.asarray(np.bincount(label, minlength=len(label))[label] >= smallest)


def _sweep_cuts(near: Ints) -> Iterator[tuple[float, Bools]]:
    """For each leading eigenvector, its best sweep cut: conductance, and the rows on one side."""
    n = len(near)
    rows, others = _edges(near)
    degree = np.bincount(rows, minlength=n).astype(np.float64)
    smallest = max(2, int(n * MINORITY_MIN))
    for vector in _eigenvectors(rows, others, degree).T:
        order = np.argsort(vector / np.sqrt(degree), kind="stable")
        place = np.empty(n, np.int64)
        place[order] = np.arange(n)
        low, high = np.minimum(place[rows], place[others]), np.maximum(place[rows], place[others])
        crossing = np.cumsum(np.bincount(low, minlength=n) - np.bincount(high, minlength=n))
        volume = np.cumsum(degree[order])
        cuts = (crossing / np.maximum(np.minimum(volume, volume[-1] - volume), 1))[smallest - 1 : n - smallest]
        at = int(np.argmin(cuts))
        yield float(cuts[at]), place < at + smallest


def _eigenvectors(rows: Ints, others: Ints, degree: NDArray[np.float64]) -> NDArray[np.float64]:
    """Leading eigenvectors of the normalised adjacency matrix by Lanczos' method, fully reorthogonalised: (n, 6).

    The trivial one is not left out: where parts are wholly apart it is one of several with eigenvalue 1, and mixed.
    """
    n = len(degree)
    others = others[np.argsort(rows, kind="stable")]
    starts = np.cumsum(degree).astype(np.int64) - degree.astype(np.int64)
    root = np.sqrt(degree)
    basis, images = np.empty((2, min(_STEPS, n), n))
    vector = np.random.Generator(np.random.Philox(0)).standard_normal(n)
    size = 0
    for at in range(len(basis)):
        basis[at] = vector / np.linalg.norm(vector)
        # Every row has edges (k >= 1), so no segment is empty.
        images[at] = np.add.reduceat((basis[at] / root)[others], starts) / root
        size = at + 1
        vector = images[at].copy()
        for _ in range(2):  # once is not enough in floating point
            vector -= (basis[:size] @ vector) @ basis[:size]
        if np.linalg.norm(vector) < _EXHAUSTED:
            break
    vectors = np.linalg.eigh(basis[:size] @ images[:size].T)[1]
    return np.asarray(basis[:size].T @ vectors[:, -_VECTORS:])


def _shared(one: Unit, two: Unit) -> float:
    """Common directions of two parts beyond chance, as a share of what the halves of each have in common."""
    own = [_overlap(part[0::2], part[1::2]) - 1 for part in (one, two)]
    if min(own) < OWN_EXCESS_MIN:
        return 1.0
    return float((_overlap(one, two) - 1) / np.sqrt(own[0] * own[1]))


def _overlap(one: Unit, two: Unit) -> float:
    """Dimension x tr(C1 C2) of two samples' covariances scaled to trace 1; 1 by chance, as the samples are apart."""
    a, b = (part.astype(np.float64) - part.mean(axis=0, dtype=np.float64) for part in (one, two))
    return float(one.shape[1] * np.square(a @ b.T).sum() / (np.square(a).sum() * np.square(b).sum()))
