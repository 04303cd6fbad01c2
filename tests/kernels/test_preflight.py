"""Figures of the look before a run, each against an independent library or a slow obvious form; and the verdict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform
from scipy.stats import pearsonr, skew
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from clouds import two_warps, unit
from veclink.kernels import cloud_shape as shape
from veclink.kernels import preflight
from veclink.runs import seeds as seed_reader

SCIFACT = Path(__file__).parents[1] / "data" / "scifact.npz"


def pairs_of(count, noise=0.05):
    return two_warps(count, (48, 64), noise, np.random.default_rng(4))


def real_pairs(encoders, count, draw=0):
    stored = np.load(SCIFACT)
    rows = np.random.default_rng(draw).permutation(len(stored["ids"]))[:count]
    return tuple(unit(stored[e][rows].astype(np.float32)) for e in encoders)


def hsic(k, m):
    """Unbiased HSIC by the text of Song et al. 2012, equation 5."""
    n, one = len(k), np.ones(len(k))
    k, m = k - np.diag(np.diag(k)), m - np.diag(np.diag(m))
    middle = (one @ k @ one) * (one @ m @ one) / ((n - 1) * (n - 2))
    return (np.trace(k @ m) + middle - 2 / (n - 2) * (one @ k @ m @ one)) / (n * (n - 3))


def test_bins_are_pearson_of_euclidean_distances_of_pairs_of_like_length():
    a, b = pairs_of(30)
    found = preflight.agreement(a, b, 0, 19)
    x, y = pdist(a.astype(np.float64)), pdist(b.astype(np.float64))
    order = np.argsort(x)
    assert found.near == pytest.approx(pearsonr(x[order[:218]], y[order[:218]]).statistic, abs=1e-6)
    assert sum(e.pairs for e in found.bins) == len(x)
    start = 0
    for each in found.bins:
        rows = order[start : start + each.pairs]
        assert each.correlation == pytest.approx(pearsonr(x[rows], y[rows]).statistic, abs=1e-6)
        assert (each.low, each.high) == pytest.approx((x[rows].min(), x[rows].max()), abs=1e-6)
        assert (each.source, each.target) == pytest.approx((x[rows].mean(), y[rows].mean()), abs=1e-6)
        start += each.pairs


def test_jaccard_is_that_of_the_sets_of_nearest_seeds():
    a, b = pairs_of(25)
    lists = [NearestNeighbors(n_neighbors=5).fit(x).kneighbors(return_distance=False) for x in (a, b)]
    sets = [(set(p), set(q)) for p, q in zip(*(x.tolist() for x in lists), strict=True)]
    expected = np.mean([len(p & q) / len(p | q) for p, q in sets])
    found = {n.k: n.jaccard for n in preflight.agreement(a, b, 0, 19).lists}
    assert found[5] == pytest.approx(expected)
    assert sorted(found) == [1, 3, 5, 10]


def test_cka_is_debiased_by_the_book():
    a, b = (x.astype(np.float64) for x in pairs_of(12))
    k, m = a @ a.T, b @ b.T
    expected = hsic(k, m) / np.sqrt(hsic(k, k) * hsic(m, m))
    assert preflight.agreement(*pairs_of(12), 0, 19).cka == pytest.approx(expected, abs=1e-6)


def test_cka_of_unrelated_rows_is_about_zero_however_few_they_are():
    rng = np.random.default_rng(0)
    values = []
    for _ in range(200):
        a, b = (preflight.centred_gram(unit(rng.standard_normal((10, 300)))) for _ in range(2))
        values.append(preflight.cka(a, b))
    assert abs(np.mean(values)) < 0.05


def test_cka_does_not_see_a_rotation():
    a, _ = pairs_of(20)
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((48, 48)))[0].astype(np.float32)
    assert preflight.agreement(a, a @ turn, 0, 19).cka == pytest.approx(1, abs=1e-5)


def test_chance_is_what_shuffled_pairs_reach():
    a, b = pairs_of(30)
    chance = preflight.agreement(a, b, 0, 199)
    order = np.random.default_rng(5)
    wrong = [preflight.agreement(a, b[order.permutation(30)], 0, 19) for _ in range(60)]
    for name in ("near", "cka"):
        below = np.mean([getattr(w, name) <= getattr(chance, f"{name}_chance") for w in wrong])
        assert 0.85 <= below <= 1.0


def test_of_many_seeds_a_sample_is_looked_at():
    a, b = pairs_of(preflight.MOST_SEEDS + 50)
    found = preflight.agreement(a, b, 0, 19)
    assert found.seeds == preflight.MOST_SEEDS
    assert found == preflight.agreement(a, b, 0, 19)


@pytest.mark.parametrize("count", [4, 5, 9])
def test_few_seeds_give_figures_all_the_same(count):
    found = preflight.agreement(*pairs_of(count), 0, 19)
    assert np.isfinite([found.near, found.cka, found.bins[0].correlation]).all()


def test_rank_is_that_of_the_matrix():
    a, _ = pairs_of(15)
    assert preflight.seed_rank(a) == 15
    assert preflight.seed_rank(np.concatenate([a, a[:4], unit(a[:1] + a[1:2])])) == 15
    many = unit(np.random.default_rng(0).standard_normal((200, 48)))
    assert preflight.seed_rank(many) == np.linalg.matrix_rank(many) == 48


def test_common_ground_is_the_overlap_of_the_shares():
    seeds = np.eye(3, dtype=np.float32)
    source, target = seeds[[0, 0, 0, 1]], seeds[[0, 1, 2, 2]]
    assert preflight.common_ground((source, target), (seeds, seeds)) == pytest.approx(0.25 + 0.25)
    assert preflight.common_ground((source, source), (seeds, seeds)) == 1


def sample_of(n, seed=0):
    return unit(two_warps(n, (24, 24), 0.05, np.random.default_rng(seed))[0])


@pytest.mark.parametrize("block", [32 * 2**20, 4000])
def test_neighbours_and_hubs_are_those_of_the_libraries(block, monkeypatch):
    monkeypatch.setattr(shape, "_BLOCK_BYTES", block)
    rows = sample_of(300)
    found = shape.cloud_shape(rows, 10)
    distance, listed = NearestNeighbors(n_neighbors=10, metric="cosine").fit(rows).kneighbors()
    counts = np.bincount(listed.ravel(), minlength=300)
    np.testing.assert_array_equal(found.occurrences, counts)
    np.testing.assert_allclose(found.similarity, 1 - distance, atol=1e-5)
    assert found.hub_skewness == pytest.approx(skew(counts))
    assert found.antihubs == pytest.approx((counts == 0).mean())


def test_near_duplicates_are_counted():
    rows = sample_of(200)
    rows[:6] = unit(rows[6:12] + 1e-4)
    far = squareform(pdist(rows, "cosine"))
    np.fill_diagonal(far, 2)
    expected = (1 - far.min(axis=1) > 0.999).mean()
    assert shape.cloud_shape(rows, 10).near_duplicates == pytest.approx(expected)
    assert expected >= 12 / 200


def test_spectrum_is_that_of_pca():
    for rows in (sample_of(300), sample_of(300)[:10]):
        found = shape.variance_shares(rows)
        expected = PCA().fit(rows.astype(np.float64)).explained_variance_ratio_
        np.testing.assert_allclose(found[: len(expected)], expected, atol=1e-6)
    assert shape.directions_for(np.array([0.5, 0.4, 0.1]), 0.9) == 2
    assert shape.directions_for(np.array([0.5, 0.4, 0.1]), 1.0) == 3


def test_two_nn_is_the_fit_of_the_paper():
    rows = sample_of(250).astype(np.float64)
    near = np.sort(squareform(pdist(rows)) + np.diag(np.full(250, np.inf)), axis=1)[:, :2]
    ratio = np.sort(near[:, 1] / near[:, 0])
    x, y = np.log(ratio[:225]), -np.log(1 - np.arange(1, 226) / 250)
    slope = np.linalg.lstsq(x[:, None], y, rcond=None)[0][0]
    assert shape.cloud_shape(sample_of(250), 10).intrinsic_dimension == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("dimension", [2, 5])
def test_two_nn_finds_the_dimension_of_a_sphere_in_many_dimensions(dimension):
    rng = np.random.default_rng(0)
    low = unit(rng.standard_normal((3000, dimension + 1)))
    basis = np.linalg.qr(rng.standard_normal((100, dimension + 1)))[0]
    found = shape.cloud_shape((low @ basis.T).astype(np.float32), 10).intrinsic_dimension
    assert found == pytest.approx(dimension, rel=0.15)


def test_a_tiny_or_flat_sample_is_no_error():
    tiny = shape.cloud_shape(sample_of(3), 10)
    assert tiny.similarity.shape == (3, 2)
    square = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]], np.float32)
    assert shape.cloud_shape(square, 1).intrinsic_dimension is None  # both neighbours are equally far
    assert shape.skewness(np.full(5, 3)) == 0


@pytest.mark.parametrize(
    ("encoders", "word"),
    [(("minilm", "mpnet"), "expected"), (("minilm", "use"), "doubtful"), (("mpnet", "use"), "doubtful")],
)
def test_verdict_on_real_encoders(encoders, word):
    # By chance some draws of 30 seeds look better or worse than their encoders are (bench/diagnose_table.py).
    words = []
    for draw in range(6):
        a, b = real_pairs(encoders, 30, draw)
        words.append(preflight.verdict(preflight.agreement(a, b, 0, 19), 1.0, 30).word)
        wrong = preflight.verdict(preflight.agreement(a, np.roll(b, 1, axis=0), 0, 19), 1.0, 30)
        assert wrong.word == "not expected"
        assert "p = " in wrong.reason
    assert words.count(word) >= 4
    assert "not expected" not in words


def test_verdict_names_what_decided():
    a, b = real_pairs(("minilm", "mpnet"), 30)
    good = preflight.agreement(a, b, 0, 19)
    said = preflight.verdict(good, 0.9, 30)
    assert f"{good.correlation:.2f}" in said.reason
    assert f"{good.near:.2f}" in said.reason
    apart = preflight.verdict(good, 0.05, 30)
    assert apart.word == "not expected"
    assert "0.05" in apart.reason
    mixed = preflight.verdict(good, 0.9, 30, ["source: two encoders seem to be mixed"])
    assert mixed.word == "doubtful"
    assert "two encoders" in mixed.reason


def test_few_seeds_are_never_more_than_doubtful():
    a, b = real_pairs(("minilm", "mpnet"), 10)
    assert preflight.verdict(preflight.agreement(a, b, 0, 19), 0.9, 10).word == "doubtful"
    shuffled = preflight.agreement(a, np.roll(b, 1, axis=0), 0, 19)
    assert preflight.verdict(shuffled, 0.9, 10).word == "doubtful"
    assert preflight.verdict(None, 0.9, 3).word == "doubtful"


def test_limits_are_those_of_the_link_run():
    assert preflight.P_VALUE_LIMIT == seed_reader.P_VALUE_LIMIT
    assert preflight.TRUSTED_SEEDS == seed_reader.MIN_SEEDS_TO_REFUSE
