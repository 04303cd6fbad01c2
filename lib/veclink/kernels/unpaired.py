"""A first map between two clouds without a single known pair.

Two encoders place the same objects differently, but they agree about which are alike. So the centroids of a clustering
of one side can be matched with those of the other by their similarities among each other, and a row is then described
on either side by its similarities to matched centroids. One clustering is too coarse and too often wrong; many, from
different starts and samples, each matched by itself, are right often enough to average.

Source: mini-vec2vec (Dar 2025, arXiv 2510.02348); what is ours: stored means instead of the batch's, one random key for
everything, known pairs as fixed nodes of the assignment, and agreement of independent runs as the test of success.

Letters: n source rows, m target rows, c clusters, s known pairs (seeds).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veclink.kernels.assignment import quadratic_assignment
from veclink.kernels.csls import Matrix, Nearest, Rows, list_length
from veclink.kernels.kmeans import spherical_kmeans
from veclink.kernels.soft import procrustes

ROWS_PER_CLUSTER_MIN = 5


@dataclass(frozen=True)
class UnpairedOptions:
    """restarts: clusterings of both sides. clusters: of each. sample: rows clustered, at most.

    starts: random starts of an assignment. k: targets averaged into a pseudo-pair. run: number of this independent run;
    with random_seed it keys all sampling.
    """

    restarts: int = 15
    clusters: int = 20
    sample: int = 10_000
    starts: int = 100
    k: int = 50
    random_seed: int = 0
    run: int = 0


def start_map(
    source: Matrix, target: Matrix, seeds: Rows, nearest: Nearest, options: UnpairedOptions = UnpairedOptions()
) -> Matrix:
    """First map (r_a, r_b), of orthonormal rows or columns, from structure alone (and known pairs, if there are any).

    source: (n, r_a), target: (m, r_b) float32 unit rows about their own mean (see soft.Space). seeds: (s, 2) row pairs,
    s may be 0. nearest(queries, base, k) returns similarities (q, k), best first, and row numbers (q, k).
    """
    known = source[seeds[:, 0]], target[seeds[:, 1]]
    ours, theirs = aligned_centroids(source, target, known, options)
    weights = np.concatenate([np.repeat(trust(ours, theirs), ours.shape[1]), np.ones(len(seeds))])
    described = [
        relative(points, np.concatenate([centroids.reshape(-1, points.shape[1]), pairs]), weights)
        for points, centroids, pairs in zip((source, target), (ours, theirs), known, strict=True)
    ]
    found = nearest(described[0], described[1], list_length(options.k, len(source), len(target)))[1]
    return procrustes(source, target[found].mean(axis=1))


def aligned_centroids(
    source: Matrix, target: Matrix, known: tuple[Matrix, Matrix], options: UnpairedOptions
) -> tuple[Matrix, Matrix]:
    """Centroids of both sides, in each restart by position thought to be the same place.

    source: (n, r_a), target: (m, r_b), known: (s, r_a) and (s, r_b) rows of the known pairs, all float32 unit rows.
    Returns (restarts, c, r_a) and (restarts, c, r_b); c is `clusters`, less where a cluster would have too few rows.
    """
    pairs = []
    for restart in range(options.restarts):
        rng = np.random.default_rng([options.random_seed, options.run, restart])
        pairs.append(_match_once(source, target, known, options, rng))
    ours, theirs = zip(*pairs, strict=True)
    return np.stack(ours), np.stack(theirs)


def _match_once(
    source: Matrix, target: Matrix, known: tuple[Matrix, Matrix], options: UnpairedOptions, rng: np.random.Generator
) -> tuple[Matrix, Matrix]:
    """One clustering of either side, the second in the order of the first."""
    clusters = max(2, min(options.clusters, min(len(source), len(target)) // ROWS_PER_CLUSTER_MIN))
    a, b = (
        spherical_kmeans(p[rng.permutation(len(p))[: options.sample]], clusters, rng)[0].astype(np.float64)
        for p in (source, target)
    )
    # A known pair is a node whose partner is fixed: its terms of the quadratic sum are linear in the others' partners.
    linear = 2 * (a @ known[0].T.astype(np.float64)) @ (b @ known[1].T.astype(np.float64)).T
    order, _ = quadratic_assignment(a @ a.T, b @ b.T, linear, options.starts, rng)
    return a.astype(np.float32), b[order].astype(np.float32)


def trust(ours: Matrix, theirs: Matrix) -> Matrix:
    """How far each restart agrees with the others: (restarts,) weights in [0, 1], the largest 1.

    ours: (t, c, r_a), theirs: (t, c, r_b), aligned centroids. Restart t stands for the map ours_t' theirs_t. Right maps
    are alike and each wrong one is wrong in its own way, so the leading eigenvector of the cosines between maps tells
    them apart; its square is the weight. The inner product of two maps is the sum of (ours_t ours_s') * (theirs_t
    theirs_s'), so no map is ever made.
    """
    restarts, clusters, _ = ours.shape
    a, b = (x.reshape(restarts * clusters, -1).astype(np.float64) for x in (ours, theirs))
    blocks = ((a @ a.T) * (b @ b.T)).reshape(restarts, clusters, restarts, clusters).sum(axis=(1, 3))
    scale = np.sqrt(np.diag(blocks))
    likeness = blocks / np.outer(scale, scale)
    np.fill_diagonal(likeness, 0)  # a map that agrees with itself only is trusted by nobody
    leading = np.linalg.eigh(likeness)[1][:, -1]
    leading = np.maximum(leading * np.sign(leading.sum()), 0)
    if restarts == 1 or not leading.any():
        return np.ones(restarts, dtype=np.float32)
    return np.asarray(np.square(leading / leading.max()), dtype=np.float32)


def relative(points: Matrix, anchors: Matrix, weights: Matrix) -> Matrix:
    """Rows described by their weighted similarities to the anchors: (n, anchors) float32, unit rows.

    points: (n, r), anchors: (p, r), float32 unit rows. weights: (p,), 0 or more, not all 0.
    """
    described = points @ (anchors * weights[:, None]).T.astype(np.float32)
    described /= np.maximum(np.linalg.norm(described, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    return described
