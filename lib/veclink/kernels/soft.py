"""Soft orthogonal alignment of two clouds, of which only part is the same objects.

A map W that is roughly right sends a row of the source near its neighbourhood in the target. Pairing each of a random
sample of rows with the mean of its k nearest targets, and fitting an orthogonal map to those pairs, gives a better W:
errors of single pairs average out, and no threshold is needed. It is repeated until the map stops getting better.

Source: mini-vec2vec (Dar 2025, arXiv 2510.02348), refinement by matching; the optional known pairs, the work in the
leading principal directions and the end by measurement are ours.

Letters: n source rows, m target rows, r directions kept on either side.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veclink.kernels.csls import Matrix, Nearest, Rows, list_length

# What directions are worth that no pair tells of, in units of the one that the pairs tell most of.
UNTOLD = 1e-3


@dataclass(frozen=True)
class Space:
    """Where a side's rows are compared: mean (d,) and basis (d, r) of orthonormal columns, both float32."""

    mean: Matrix
    basis: Matrix

    def project(self, points: Matrix) -> Matrix:
        """(n, d) rows as (n, r) unit rows: minus the stored mean, in the basis. A row at the mean stays 0."""
        inside = (points - self.mean) @ self.basis
        norms = np.linalg.norm(inside, axis=1, keepdims=True)
        unit: Matrix = inside / np.maximum(norms, np.finfo(np.float32).tiny)
        return unit


@dataclass(frozen=True)
class SoftOptions:
    """rows: sampled a step, half on either side. seed_weight: of a known pair, in sampled rows.

    ks: partners averaged, one stage after the other; a cycle is all stages, one at least. A stage ends when the mean
    similarity of its last `window` steps is not above that of the window before by the share gain_min, and after
    steps_max steps; the cycles end likewise with cycle_gain_min, and after cycles_max. random_key: what the sampling is
    keyed by.
    """

    rows: int = 1000
    ks: tuple[int, ...] = (50, 10, 5)
    seed_weight: float = 5.0
    window: int = 10
    gain_min: float = 0.001
    steps_max: int = 300
    cycle_gain_min: float = 0.01
    cycles_max: int = 4
    random_key: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Refined:
    """map: (r_a, r_b) float32, of orthonormal rows or columns.

    stages: for each stage of each cycle the mean similarity of the sampled rows to their k partners, step by step.
    similarity: that of the last window; among runs on the same data the highest is the best map.
    """

    map: Matrix
    stages: tuple[tuple[float, ...], ...]
    similarity: float


def pca(points: Matrix, dims: int) -> Space:
    """Mean and the min(dims, d, n) leading principal directions of (n, d) rows; a sample of a large side will do.

    Computed in float64. The sign of a direction is free; the rows are made to lie skew to its positive side, so that a
    rotated cloud has the rotated directions.
    """
    wide = points.astype(np.float64)
    mean = wide.mean(axis=0)
    wide -= mean
    vectors = np.linalg.eigh(wide.T @ wide)[1][:, ::-1][:, : min(dims, *points.shape)]
    skew = ((wide @ vectors) ** 3).sum(axis=0)
    return Space(mean.astype(np.float32), (vectors * np.where(skew < 0, -1, 1)).astype(np.float32))


def procrustes(source: Matrix, target: Matrix) -> Matrix:
    """The map W of orthonormal rows or columns that maximises sum of <source_i W, target_i> (Schonemann 1966).

    source: (p, r_a), target: (p, r_b), paired by position. Returns (r_a, r_b) float32.
    """
    return nearest_orthogonal(source.T.astype(np.float64) @ target)


def map_of_pairs(source: Matrix, target: Matrix, rng: np.random.Generator) -> Matrix:
    """Procrustes of few pairs; directions that no pair tells of go where chance sends them.

    Arguments and result as for `procrustes`, which leaves those directions to rounding. To send the i-th principal
    direction to the i-th is worse than chance: such maps are often well beside, and look good to both clouds.
    """
    cross = source.T.astype(np.float64) @ target
    anywhere = nearest_orthogonal(rng.standard_normal(cross.shape))
    return nearest_orthogonal(cross + UNTOLD * np.linalg.norm(cross, 2) * anywhere)


def nearest_orthogonal(matrix: NDArray[Any]) -> Matrix:
    """The matrix of orthonormal rows or columns nearest to an (r_a, r_b) one."""
    u, _, vt = np.linalg.svd(matrix, full_matrices=False)
    return np.asarray(u @ vt, dtype=np.float32)


def soft_refine(
    source: Matrix, target: Matrix, start_map: Matrix, seeds: Rows, nearest: Nearest, options: SoftOptions
) -> Refined:
    """Improve a map until it stops moving.

    source: (n, r_a), target: (m, r_b) float32 unit rows (see Space.project). start_map: (r_a, r_b). seeds: (s, 2)
    row pairs, s may be 0. nearest(queries, base, k) returns similarities (q, k), best first, and row numbers (q, k).
    """
    rng = np.random.default_rng(options.random_key)
    sides = _Side(source, target, rng, nearest), _Side(target, source, rng, nearest)
    known = np.float32(options.seed_weight) * (source[seeds[:, 0]].T @ target[seeds[:, 1]])
    current, fresh = start_map, start_map
    stages: list[tuple[float, ...]] = []
    levels: list[float] = []
    while len(levels) < options.cycles_max and _still_rising(levels, 1, options.cycle_gain_min):
        for k in options.ks:
            current, fresh, history = _stage(sides, current, known, k, options)
            stages.append(tuple(history))
        levels.append(float(np.mean(history[-options.window :])))
    return Refined(fresh, tuple(stages), levels[-1])


def _stage(
    sides: tuple[_Side, _Side], current: Matrix, known: Matrix, k: int, options: SoftOptions
) -> tuple[Matrix, Matrix, list[float]]:
    """Steps at one k: the running map, the map of the whole last window, and the similarity of every step."""
    recent: deque[Matrix] = deque(maxlen=options.window)
    history: list[float] = []
    half = -(-options.rows // 2)
    while len(history) < options.steps_max and _still_rising(history, options.window, options.gain_min):
        (forth, similarity), (back, other) = sides[0].step(current, half, k), sides[1].step(current.T, half, k)
        recent.append(forth + back.T + known)
        current = np.float32(0.5) * (current + nearest_orthogonal(recent[-1]))
        history.append((similarity + other) / 2)
    # One sample leaves its noise in a map; the last window together has `window` times as many rows.
    return current, nearest_orthogonal(np.sum(recent, axis=0)), history


class _Side:
    """The rows of one side, visited in random order and again from the start when all have been."""

    def __init__(self, points: Matrix, others: Matrix, rng: np.random.Generator, nearest: Nearest) -> None:
        self._points, self._others, self._rng, self._nearest = points, others, rng, nearest
        self._waiting = np.empty(0, dtype=np.int64)

    def step(self, to_others: Matrix, rows: int, k: int) -> tuple[Matrix, float]:
        """Cross-covariance (r, r_others) of the next rows with their soft partners, and the mean similarity."""
        if len(self._waiting) < rows:
            self._waiting = np.concatenate([self._waiting, self._rng.permutation(len(self._points))])
        taken, self._waiting = self._waiting[:rows], self._waiting[rows:]
        points = self._points[taken]
        similarity, found = self._nearest(
            points @ to_others, self._others, list_length(k, len(self._points), len(self._others))
        )
        return points.T @ self._others[found].mean(axis=1), float(similarity.mean())


def _still_rising(history: list[float], window: int, gain_min: float) -> bool:
    """Whether the last `window` values are on average above the `window` before by more than the share gain_min.

    Also if there are too few to tell. Similarities are positive as soon as a map is better than none.
    """
    if len(history) < 2 * window:
        return True
    late, early = np.mean(history[-window:]), np.mean(history[-2 * window : -window])
    return bool(late - early > gain_min * abs(early))
