"""Affine views: linear maps fitted on anchor pairs bring both clouds into one space, where they are compared.

Clouds are centred by their own mean first: encoders put their clouds anywhere, and the shift says nothing.
Letters: s anchors, d_s and d_t the dimensions of the two sides.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]


def unit_rows(points: Matrix) -> Matrix:
    """Rows scaled to length 1; a zero row stays zero."""
    norms = np.sqrt(np.einsum("ij,ij->i", points, points))
    scaled: Matrix = points / np.maximum(norms, np.finfo(np.float32).tiny)[:, None]
    return scaled


def cca_maps(source: Matrix, target: Matrix, ridge: float = 1.0, width: int = 256) -> tuple[Matrix, Matrix]:
    """Canonical correlation analysis with a ridge: maps of both sides into their shared directions.

    source: (s, d_s), target: (s, d_t) anchors, paired by position, from centred clouds. ridge: in units of the mean
    variance of a side, above 0. Returns (d_s, r) and (d_t, r) with r = min(d_s, d_t, width); directions weigh by their
    correlation, so those the encoders do not share count little.

        C = X'X / s + ridge (tr(X'X / s) / d) I;   U diag(c) V' = svd(C_s^-1/2 (X_s'X_t / s) C_t^-1/2)
        maps C_s^-1/2 U diag(c), C_t^-1/2 V diag(c)

    Hotelling 1936, "Relations between two sets of variates"; the ridge: Vinod 1976, "Canonical ridge".
    """
    white_source, white_target = _inverse_root(source, ridge), _inverse_root(target, ridge)
    cross = white_source @ (source.T @ target / len(source)) @ white_target
    u, c, vt = np.linalg.svd(cross, full_matrices=False)
    r = min(len(c), width)
    return white_source @ u[:, :r] * c[:r], white_target @ vt[:r].T * c[:r]


def _inverse_root(anchors: Matrix, ridge: float) -> Matrix:
    covariance = anchors.T.astype(np.float64) @ anchors / len(anchors)
    scale = np.trace(covariance) / len(covariance)
    values, vectors = np.linalg.eigh(covariance)
    values = np.maximum(values, 0) + ridge * max(scale, np.finfo(np.float32).tiny)
    root: Matrix = ((vectors * values**-0.5) @ vectors.T).astype(np.float32)
    return root


def ridge_map(source: Matrix, target: Matrix, penalty: float = 0.5) -> Matrix:
    """Ridge regression of the target anchors on the source anchors: (d_s, d_t).

    Solved in the dual form while there are fewer anchors than dimensions, else in the primal one; the map is the same.
    penalty: above 0, in units of one unit row. Hoerl and Kennard 1970.
    """
    x, y = source.astype(np.float64), target.astype(np.float64)
    if len(x) < x.shape[1]:
        weights = x.T @ np.linalg.solve(x @ x.T + penalty * np.eye(len(x)), y)
    else:
        weights = np.linalg.solve(x.T @ x + penalty * np.eye(x.shape[1]), x.T @ y)
    out: Matrix = weights.astype(np.float32)
    return out
