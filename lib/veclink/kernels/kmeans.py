"""Spherical k-means: unit rows in groups of like direction (Dhillon and Modha 2001), started as k-means++ does."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]
Ints = NDArray[np.int64]


def spherical_kmeans(
    points: Matrix, clusters: int, rng: np.random.Generator, steps_max: int = 50
) -> tuple[Matrix, Ints]:
    """Centroids (clusters, d) of unit length and the cluster of each row (n,).

    points: (n, d) float32 unit rows, n at least `clusters`. Ends when no row changes its cluster, or after steps_max.
    A cluster that loses all its rows starts again from the row that is worst served. Raises ValueError if n is less.
    """
    if len(points) < clusters:
        raise ValueError(f"clusters must be at most the number of rows, {len(points)}. Got {clusters} instead.")
    centroids = _spread_starts(points, clusters, rng)
    labels = np.full(len(points), -1, dtype=np.int64)
    for _ in range(steps_max):
        similarity = points @ centroids.T
        assigned = similarity.argmax(axis=1)
        if (assigned == labels).all():
            break
        labels = _fill_empty(assigned, similarity, clusters)
        centroids = _centroids(points, labels, clusters)
    return centroids, labels


def _spread_starts(points: Matrix, clusters: int, rng: np.random.Generator) -> Matrix:
    """k-means++ (Arthur and Vassilvitskii 2007): each next start with chance proportional to its squared distance."""
    chosen = [int(rng.integers(len(points)))]
    distance = np.full(len(points), np.inf)
    for _ in range(clusters - 1):
        distance = np.minimum(distance, np.maximum(1 - points @ points[chosen[-1]], 0))
        distance[chosen[-1]] = 0
        total = np.cumsum(distance)
        # All rows equal to a start already: any row will do.
        pick = np.searchsorted(total, rng.random() * total[-1], side="right") if total[-1] > 0 else len(chosen)
        chosen.append(min(int(pick), len(points) - 1))
    return points[chosen]


def _fill_empty(labels: Ints, similarity: Matrix, clusters: int) -> Ints:
    labels = labels.copy()
    sizes = np.bincount(labels, minlength=clusters)
    served = similarity.max(axis=1)
    for empty in np.flatnonzero(sizes == 0):
        worst = int(np.where(sizes[labels] > 1, served, np.inf).argmin())
        sizes[labels[worst]] -= 1
        labels[worst], served[worst], sizes[empty] = empty, np.inf, 1
    return labels


def _centroids(points: Matrix, labels: Ints, clusters: int) -> Matrix:
    members = np.zeros((clusters, len(points)), dtype=np.float32)
    members[labels, np.arange(len(points))] = 1
    sums = members @ points
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    # Opposite rows may sum to nothing; such a centroid stays 0, is nearest to nobody and starts again.
    centroids: Matrix = sums / np.maximum(norms, np.finfo(np.float32).tiny)
    return centroids
