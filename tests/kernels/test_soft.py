"""The soft start: projections and maps against scikit-learn and scipy, refinement on real embeddings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes
from scipy.stats import ortho_group
from sklearn.decomposition import PCA

from bench.quality import Row, cut
from clouds import two_warps, unit
from veclink.backends import faiss_cpu, numpy_tiles
from veclink.kernels.soft import (
    SoftOptions,
    _still_rising,
    map_of_pairs,
    nearest_orthogonal,
    pca,
    procrustes,
    soft_refine,
)

DATA = Path(__file__).parents[1] / "data"
NO_SEEDS = np.empty((0, 2), dtype=np.int64)


def right(x, y, inner, truth):
    """Share of shared rows whose nearest target is the same object."""
    rows = np.array(sorted(truth.items()))
    return (faiss_cpu.nearest(x[rows[:, 0]] @ inner, y, 1)[1][:, 0] == rows[:, 1]).mean()


@pytest.fixture(scope="module")
def scifact():
    """Two encoders, 2,000 objects, 30 % of them shared, in 64 dimensions; 15 known pairs."""
    source, target, seeds, truth = cut(DATA, Row("scifact", "minilm", "mpnet", 2000, 15, ""), 100)
    x, y = pca(source, 64).project(source), pca(target, 64).project(target)
    return x, y, seeds, truth


def test_space_is_that_of_scikit_learn():
    points, _ = two_warps(300, (20, 20), 0.1, np.random.default_rng(0))
    space, theirs = pca(points, 5), PCA(5).fit(points)
    np.testing.assert_allclose(space.mean, theirs.mean_, atol=1e-6)
    np.testing.assert_allclose(np.abs(np.diag(space.basis.T @ theirs.components_.T)), 1, atol=1e-4)
    np.testing.assert_allclose(space.project(points), unit(PCA(5).fit(points).transform(points)) * signs(space, theirs),
                               atol=1e-3)  # fmt: skip


def signs(space, theirs):
    return np.sign(np.diag(space.basis.T @ theirs.components_.T))


def test_projection_of_a_row_does_not_depend_on_the_batch():
    points, _ = two_warps(100, (12, 12), 0.1, np.random.default_rng(1))
    space = pca(points, 6)
    together = space.project(points)
    np.testing.assert_allclose(space.project(points[7:8])[0], together[7], atol=1e-6)
    assert np.abs(together[7]).max() > 0.1


def test_a_row_at_the_mean_stays_zero():
    points, _ = two_warps(100, (12, 12), 0.1, np.random.default_rng(2))
    space = pca(points, 6)
    assert not space.project(space.mean[None]).any()


@pytest.mark.parametrize("dims", [(200, 9), (3, 40)])
def test_space_has_no_more_directions_than_the_data(dims):
    wanted, rows = dims
    points = unit(np.random.default_rng(3).standard_normal((rows, 7)))
    assert pca(points, wanted).basis.shape == (7, min(wanted, rows, 7))


def test_a_rotated_cloud_has_the_rotated_directions():
    points, _ = two_warps(400, (16, 16), 0.1, np.random.default_rng(4))
    turned = (points @ np.linalg.qr(np.random.default_rng(5).standard_normal((16, 16)))[0]).astype(np.float32)
    np.testing.assert_allclose(pca(turned, 6).project(turned), pca(points, 6).project(points), atol=1e-3)


def test_a_map_of_few_pairs_is_procrustes_where_they_tell_and_any_map_elsewhere():
    a, b = (unit(np.random.default_rng(i).standard_normal((3, 8))) for i in (0, 1))
    one, again, other = (map_of_pairs(a, b, np.random.default_rng(i)) for i in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 0.1
    for found in (one, other):
        np.testing.assert_allclose(found @ found.T, np.eye(8), atol=1e-5)
        assert np.trace(a @ found @ b.T) == pytest.approx(np.trace(a @ procrustes(a, b) @ b.T), rel=1e-2)
    enough = unit(np.random.default_rng(2).standard_normal((40, 8)))
    np.testing.assert_allclose(map_of_pairs(enough, enough, np.random.default_rng(0)), np.eye(8), atol=0.01)


def test_procrustes_is_that_of_scipy():
    rng = np.random.default_rng(4)
    a, b = unit(rng.standard_normal((60, 10))), unit(rng.standard_normal((60, 10)))
    np.testing.assert_allclose(procrustes(a, b), orthogonal_procrustes(a, b)[0], atol=1e-5)


@pytest.mark.parametrize("shape", [(6, 9), (9, 6), (5, 5)])
def test_maps_have_orthonormal_rows_or_columns(shape):
    inner = nearest_orthogonal(np.random.default_rng(5).standard_normal(shape))
    small = inner @ inner.T if shape[0] <= shape[1] else inner.T @ inner
    np.testing.assert_allclose(small, np.eye(min(shape)), atol=1e-5)


def test_fifteen_pairs_of_real_embeddings_take_off(scifact):
    x, y, seeds, truth = scifact
    start = procrustes(x[seeds[:, 0]], y[seeds[:, 1]])
    found = soft_refine(x, y, start, seeds, faiss_cpu.nearest, SoftOptions(rows=400))
    assert right(x, y, start, truth) < 0.3
    assert right(x, y, found.map, truth) > 0.9
    assert 2 <= len(found.stages) / 3 <= 4
    assert all(20 <= len(stage) < 300 for stage in found.stages)


def test_similarity_tells_the_better_of_two_maps(scifact):
    x, y, seeds, truth = scifact
    short = SoftOptions(rows=400, ks=(20,), cycles_max=1)
    starts = [procrustes(x[seeds[:, 0]], y[seeds[:, 1]]), ortho_group.rvs(64, random_state=0).astype(np.float32)]
    good, bad = (soft_refine(x, y, start, NO_SEEDS, faiss_cpu.nearest, short) for start in starts)
    assert right(x, y, bad.map, truth) < 0.1
    assert right(x, y, good.map, truth) > 0.5
    assert good.similarity > 1.03 * bad.similarity


def test_known_pairs_pull_the_map(scifact):
    """One step with every pair known and of great weight is Procrustes on them."""
    x, y, _, truth = scifact
    pairs = np.array(sorted(truth.items()))
    options = SoftOptions(rows=50, ks=(5,), steps_max=1, cycles_max=1, seed_weight=1e4)
    found = soft_refine(x, y, np.eye(64, dtype=np.float32), pairs, faiss_cpu.nearest, options)
    np.testing.assert_allclose(found.map, procrustes(x[pairs[:, 0]], y[pairs[:, 1]]), atol=1e-3)


def test_same_key_same_map_and_engines_agree(scifact):
    x, y, seeds, _ = scifact
    start = procrustes(x[seeds[:, 0]], y[seeds[:, 1]])
    options = SoftOptions(rows=200, ks=(20,), steps_max=8)
    first, second = (soft_refine(x, y, start, seeds, faiss_cpu.nearest, options).map for _ in range(2))
    np.testing.assert_array_equal(first, second)
    other = soft_refine(x, y, start, seeds, numpy_tiles.nearest, options).map
    assert (first * other).sum() / len(first) > 0.999  # equal similarities may be ordered differently


def test_unlike_widths_give_a_map_between_them():
    source, target = two_warps(400, (20, 30), 0.02, np.random.default_rng(8))
    x, y = pca(source, 12).project(source), pca(target, 18).project(target)
    seeds = np.repeat(np.arange(10)[:, None], 2, axis=1)
    found = soft_refine(x, y, procrustes(x[:10], y[:10]), seeds, faiss_cpu.nearest, SoftOptions(rows=200))
    np.testing.assert_allclose(found.map @ found.map.T, np.eye(12), atol=1e-4)


@pytest.mark.parametrize(
    ("history", "window", "rising"),
    [
        ([1.0], 1, True),
        ([1.0, 1.02], 1, True),
        ([1.0, 1.005], 1, False),
        ([1.0, 0.9, 1.1, 1.2], 2, True),
        ([1.0, 1.2, 1.1, 1.1], 2, False),
        ([-1.0, -0.9], 1, True),
    ],
)
def test_end_is_when_a_window_gains_too_little(history, window, rising):
    assert _still_rising(history, window, 0.01) is rising
