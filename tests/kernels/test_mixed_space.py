"""The mixed-space detector on real encoders (the SciFact sample) and on made-up clouds that could fool it."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from clouds import unit
from veclink.kernels import mixed_space

ARCHIVE = np.load(Path(__file__).parents[1] / "data" / "scifact.npz")
ENCODERS = ("minilm", "mpnet", "use")
DIM = 384  # every encoder cut to the smallest dimension, so that two can lie in one table


def cloud(encoder: str, rows: int, draw: int = 0) -> np.ndarray:
    """A random sample of an encoder's vectors."""
    chosen = np.random.default_rng([draw, rows]).choice(len(ARCHIVE["ids"]), rows, replace=False)
    return unit(ARCHIVE[encoder][chosen, :DIM].astype(np.float32))


@pytest.mark.parametrize("rows", [200, 500, 2000])
@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("pair", list(combinations(ENCODERS, 2)), ids="+".join)
def test_two_encoders_are_flagged(pair: tuple[str, str], rows: int, share: float) -> None:
    few = int(rows * share)
    mixed = np.concatenate([cloud(pair[0], rows - few), cloud(pair[1], few)])
    split = mixed_space.inspect(np.random.default_rng(0).permutation(mixed))
    assert split is not None
    assert split.suspect
    assert split.minority == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize("rows", [200, 500, 2000])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_one_encoder_is_not(encoder: str, rows: int) -> None:
    split = mixed_space.inspect(cloud(encoder, rows))
    assert split is not None
    assert not split.suspect


@pytest.mark.parametrize("encoder", ENCODERS)
def test_one_encoder_on_two_far_subjects_is_not(encoder: str) -> None:
    rows = cloud(encoder, 4000)
    along = rows @ np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2][0]
    order = np.argsort(along)
    split = mixed_space.inspect(rows[np.concatenate([order[:500], order[-500:]])])
    assert split is not None
    assert split.cut < mixed_space.CUT_MAX
    assert not split.suspect


def test_shapeless_clusters_prove_nothing() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((600, DIM)) * 0.3
    x[:300, 0] += 3
    x[300:, 1] += 3
    split = mixed_space.inspect(unit(x))
    assert split is not None
    assert not split.suspect


def test_small_islands_do_not_hide_a_mixture() -> None:
    rng = np.random.default_rng(4)
    islands = [rng.standard_normal(DIM) + 0.01 * rng.standard_normal((14, DIM)) for _ in range(4)]
    mixed = np.concatenate([cloud("minilm", 400), cloud("mpnet", 200), *map(unit, islands)])
    split = mixed_space.inspect(mixed)
    assert split is not None
    assert split.suspect


def test_too_few_rows_say_nothing() -> None:
    assert mixed_space.inspect(cloud("use", mixed_space.ROWS_MIN - 1)) is None


def test_few_dimensions_say_nothing() -> None:
    points = np.random.default_rng(0).standard_normal((400, 2)).astype(np.float32)
    assert mixed_space.inspect(unit(points)) is None


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
def test_neighbours_are_exact_for_every_block_size(block: int) -> None:
    rows = cloud("use", 120)
    scores = rows.astype(np.float64) @ rows.T.astype(np.float64)
    np.fill_diagonal(scores, -np.inf)
    want = np.sort(np.argsort(-scores, axis=1)[:, :6], axis=1)
    np.testing.assert_array_equal(np.sort(mixed_space.neighbours(rows, 6, block), axis=1), want)
