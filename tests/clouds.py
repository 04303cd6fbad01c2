"""Clouds that tests share: two warps of one latent space, with known truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Matrix = np.ndarray


@dataclass(frozen=True)
class Problem:
    """source, target: unit rows. truth: target row of every shared source row. seeds: (s, 2) row pairs."""

    source: Matrix
    target: Matrix
    truth: dict[int, int]
    seeds: Matrix


def unit(rows: Matrix) -> Matrix:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def centred(rows: Matrix) -> Matrix:
    """Unit rows about their own mean."""
    return unit(rows - rows.mean(axis=0))


def two_warps(n: int, dims: tuple[int, int], noise: float, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """n objects as two encoders would see them: clustered latents, a random tanh layer each, noise of its own."""
    latent = (
        rng.standard_normal((n, 8)) + rng.standard_normal((max(2, n // 50), 8))[rng.integers(max(2, n // 50), size=n)]
    )
    sides = [np.tanh(latent @ rng.standard_normal((8, d)) / 4) for d in dims]
    return tuple(unit(s + noise * rng.standard_normal(s.shape)) for s in sides)  # type: ignore[return-value]


def problem(objects: int = 500, overlap: float = 0.5, seeds: int = 20, noise: float = 0.01, draw: int = 0) -> Problem:
    """A linking problem by the protocol of the paper: `overlap` of the union is on both sides, rows shuffled."""
    rng = np.random.default_rng(draw)
    a, b = two_warps(objects, (48, 64), noise, rng)
    shared = round(overlap * objects)
    half = (objects - shared) // 2
    left = rng.permutation(np.r_[:shared, shared : shared + half])
    right = rng.permutation(np.r_[:shared, shared + half : objects])
    place = {o: i for i, o in enumerate(right.tolist())}
    truth = {i: place[o] for i, o in enumerate(left.tolist()) if o < shared}
    chosen = rng.choice(sorted(truth), seeds, replace=False)
    return Problem(a[left], b[right], truth, np.array([(i, truth[i]) for i in chosen.tolist()]))
