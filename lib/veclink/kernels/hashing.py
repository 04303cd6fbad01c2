"""Distance-to-anchor hashes: the same object gets nearly the same hash on both sides, whatever encoder made it.

Source: vector-linking paper, sections 3 and 4 ("Kernelized hashes"); gaps filled as DESIGN.md says.
Letters: n: points of one cloud, s: anchors of one view, d: dimension.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]

# Below this a cosine distance between float32 unit vectors is rounding noise; a cloud with many copies of an anchor
# would otherwise get a bandwidth made of noise.
DISTANCE_NOISE = 1e-6


def cosine_distances(points: Matrix, anchors: Matrix) -> Matrix:
    """Cosine distance `1 - <x, a>` of unit rows, clamped at 0.

    points: (n, d) float32 unit rows; anchors: (s, d) float32 unit rows. Returns (n, s) float32 in [0, 2].
    """
    xp = _namespace(points)
    distances = points @ anchors.T
    xp.subtract(1, distances, out=distances)
    xp.maximum(distances, 0, out=distances)  # a row against itself gives about -2e-7
    return distances


def bandwidth(distances: Matrix) -> float:
    """Median of the distances that are not noise (median heuristic); 1.0 if there are none."""
    xp = _namespace(distances)
    real = distances[distances > DISTANCE_NOISE]
    return float(xp.median(real, overwrite_input=True)) if real.size else 1.0


def kernel_hash(distances: Matrix, sigma: float) -> Matrix:
    """Unit rows of `exp(-d / sigma)` (first power): short distances dominate. Works in place on `distances`.

    distances: (n, s) float32, at least 0. sigma: above 0. Returns the same (n, s) array.
    """
    xp = _namespace(distances)
    distances *= -1.0 / sigma
    xp.exp(distances, out=distances)
    # A hash entry is exp(-d/sigma) > 0, so a row is never zero unless every entry underflows; keep that row finite.
    norms = xp.sqrt(xp.einsum("ij,ij->i", distances, distances))
    distances /= xp.maximum(norms, np.finfo(np.float32).tiny)[:, None]
    return distances


def hash_cloud(points: Matrix, anchors: Matrix, sigma_from: str) -> Matrix:
    """Hash one cloud against the anchors of one view on its own side.

    sigma_from: "cloud" takes the bandwidth from all n x s distances, "anchors" from the distances among the anchors.
    Returns (n, s) float32 unit rows. Needs two arrays of n x s float32 and one of n x s bools
    at once (the last two inside the bandwidth).
    """
    distances = cosine_distances(points, anchors)
    sigma = bandwidth(distances if sigma_from == "cloud" else cosine_distances(anchors, anchors))
    return kernel_hash(distances, sigma)


def _namespace(array: Any) -> Any:
    return array.__array_namespace__()
