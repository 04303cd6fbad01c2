"""The shape of one cloud, from a sample of it: hubs, intrinsic dimension, near duplicates, spectrum.

Letters: n: rows of the sample, d: dimension, k: list length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]
Reals = NDArray[np.float64]
Rows = NDArray[np.int64]

NEAR_DUPLICATE = 0.999
ROWS_MIN = 3
# TwoNN fits the lower part of the curve only; the paper leaves out the tenth with the largest ratios.
TWO_NN_KEPT = 0.9

_BLOCK_BYTES = 32 * 2**20


@dataclass(frozen=True)
class CloudShape:
    """What a sample says of its cloud.

    occurrences: (n,) in how many other rows' lists of k nearest a row stands. similarity: (n, k) float32 cosines to the
    k nearest other rows, best first. variance: (min(n, d),) share of the variance along each principal direction,
    largest first. hub_skewness: of the occurrences; 0 for none, above 1 few rows are in many lists. antihubs: share of
    rows in no list. intrinsic_dimension: None where it cannot be told. near_duplicates: share of rows whose nearest
    cosine is above NEAR_DUPLICATE.
    """

    occurrences: Rows
    similarity: Matrix
    variance: Reals
    hub_skewness: float
    antihubs: float
    intrinsic_dimension: float | None
    near_duplicates: float


def cloud_shape(unit: Matrix, k: int) -> CloudShape:
    """All figures of (n, d) unit rows without exact duplicates, n at least ROWS_MIN; k is cut to n - 1.

    Memory beyond the input: 32 MiB of scores, 12 n k bytes of lists, 8 min(n, d)^2 bytes of covariance.
    """
    similarity, rows = nearest_others(unit, max(k, 2))
    similarity, listed = similarity[:, :k], rows[:, :k]
    occurrences = np.bincount(listed.ravel(), minlength=len(unit))
    return CloudShape(
        occurrences=occurrences,
        similarity=similarity,
        variance=variance_shares(unit),
        hub_skewness=skewness(occurrences),
        antihubs=float((occurrences == 0).mean()),
        intrinsic_dimension=two_nn(unit, rows[:, :2]),
        near_duplicates=float((similarity[:, 0] > NEAR_DUPLICATE).mean()),
    )


def nearest_others(unit: Matrix, k: int) -> tuple[Matrix, Rows]:
    """Cosines (n, k) to the k nearest other rows, best first, and their row numbers; k is cut to n - 1."""
    n = len(unit)
    k = min(k, n - 1)
    similarity, rows = np.empty((n, k), np.float32), np.empty((n, k), np.int64)
    block = max(1, _BLOCK_BYTES // (4 * n))
    for start in range(0, n, block):
        scores = unit[start : start + block] @ unit.T
        at = np.arange(len(scores))
        scores[at, start + at] = -np.inf
        found = np.argpartition(scores, n - k, axis=1)[:, n - k :]
        order = np.argsort(-np.take_along_axis(scores, found, axis=1), axis=1, kind="stable")
        rows[start : start + block] = np.take_along_axis(found, order, axis=1)
        similarity[start : start + block] = np.take_along_axis(scores, rows[start : start + block], axis=1)
    return similarity, rows


def skewness(counts: Rows) -> float:
    """Third standardised moment; 0 where all counts are equal.

    Of the k-occurrences it measures hubness: Radovanovic et al. 2010, "Hubs in space", section 3.
    """
    centred = counts - counts.mean()
    spread = float(np.sqrt(np.square(centred).mean()))
    return float(np.power(centred, 3).mean()) / spread**3 if spread > 0 else 0.0


def two_nn(unit: Matrix, rows: Rows) -> float | None:
    """Intrinsic dimension by TwoNN: Facco et al. 2017, "Estimating the intrinsic dimension of datasets by a minimal
    neighborhood information".

    With mu the ratio of the distances to the second and to the first neighbour, F(mu) = 1 - mu^-D for any density that
    is constant over two neighbours; D is the slope through the origin of -log(1 - F) over log mu.

    rows: (n, 2) row numbers of the two nearest others. Rows that coincide with their nearest are left out. None where
    fewer than ROWS_MIN rows are left or all ratios are 1.
    """
    if rows.shape[1] < 2:
        return None
    # From differences, in double precision: 1 - cosine has lost the digits that near rows differ in.
    points = unit.astype(np.float64)
    far = [np.sqrt(np.square(points - points[rows[:, i]]).sum(axis=1)) for i in (0, 1)]
    first, second = np.minimum(*far), np.maximum(*far)
    apart = first > 0
    ratio = np.sort(np.log(second[apart] / first[apart]))
    n = len(ratio)
    kept = int(TWO_NN_KEPT * n)
    if n < ROWS_MIN or not kept or ratio[kept - 1] == 0:
        return None
    x, y = ratio[:kept], -np.log1p(-np.arange(1, kept + 1) / n)
    return float(x @ y / (x @ x))


def variance_shares(unit: Matrix) -> Reals:
    """Eigenvalues of the covariance over their sum, largest first: (min(n, d),); zeros if all rows are equal."""
    centred = unit.astype(np.float64) - unit.mean(axis=0, dtype=np.float64)
    small = centred.T @ centred if centred.shape[1] <= len(centred) else centred @ centred.T
    values = np.maximum(np.linalg.eigvalsh(small)[::-1], 0)
    return np.asarray(values / max(float(values.sum()), np.finfo(np.float64).tiny))


def directions_for(variance: Reals, share: float) -> int:
    """How many principal directions hold a share of the variance."""
    return min(int(np.searchsorted(np.cumsum(variance), share - 1e-12)) + 1, len(variance))
