"""The start without known pairs, on real embeddings, and the test of its success."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench.quality import Row, cut
from clouds import unit
from veclink.backends import faiss_cpu
from veclink.kernels.csls import mutual_matches
from veclink.kernels.soft import SoftOptions, pca, procrustes, soft_refine
from veclink.kernels.unpaired import UnpairedOptions, aligned_centroids, relative, start_map, trust

DATA = Path(__file__).parents[1] / "data"
NO_SEEDS = np.empty((0, 2), dtype=np.int64)


def projected(target, dims, seeds=0):
    a, b, pairs, truth = cut(DATA, Row("scifact", "minilm", target, 2400, seeds, ""), 100)
    return pca(a, dims).project(a), pca(b, dims).project(b), pairs, np.array(sorted(truth.items()))


def right(x, y, inner, truth):
    return (faiss_cpu.nearest(x[truth[:, 0]] @ inner, y, 1)[1][:, 0] == truth[:, 1]).mean()


def linked(target):
    """Quality of the maps of two independent runs without known pairs, and the share of pairs they agree on."""
    x, y, _, truth = projected(target, 64)
    shares, pairs = [], []
    for run in range(2):
        start = start_map(x, y, NO_SEEDS, faiss_cpu.nearest, UnpairedOptions(restarts=12, run=run))
        options = SoftOptions(rows=400, ks=(50, 10), cycles_max=1, random_key=(0, run))
        refined = soft_refine(x, y, start, NO_SEEDS, faiss_cpu.nearest, options).map
        found = mutual_matches(x @ refined, y, 50, faiss_cpu.nearest)
        shares.append(right(x, y, refined, truth))
        pairs.append(set(zip(found.source.tolist(), found.target.tolist(), strict=True)))
    return shares, len(pairs[0] & pairs[1]) / max(len(pairs[0]), 1)


def test_like_encoders_are_aligned_without_a_pair_and_runs_agree():
    shares, agreed = linked("mpnet")
    assert min(shares) > 0.9
    assert agreed > 0.8


def test_unlike_encoders_fail_and_runs_disagree():
    shares, agreed = linked("use")
    assert max(shares) < 0.2
    assert agreed < 0.1


def test_known_pairs_make_the_alignment_better():
    x, y, seeds, truth = projected("use", 64, seeds=20)
    true_map = procrustes(x[truth[:, 0]], y[truth[:, 1]])
    options = UnpairedOptions(restarts=6)

    def quality(pairs):
        ours, theirs = aligned_centroids(x, y, (x[pairs[:, 0]], y[pairs[:, 1]]), options)
        return np.einsum("tcr,tcr->", ours @ true_map, theirs) / (ours.shape[0] * ours.shape[1])

    assert quality(seeds) > quality(NO_SEEDS) + 0.1


def test_same_key_same_map_and_another_run_another():
    x, y, _, _ = projected("mpnet", 24)
    options = [UnpairedOptions(restarts=2, clusters=8, sample=300, run=run) for run in (0, 0, 1)]
    first, second, other = (start_map(x, y, NO_SEEDS, faiss_cpu.nearest, o) for o in options)
    np.testing.assert_array_equal(first, second)
    assert not np.allclose(first, other)


def test_few_rows_get_fewer_clusters():
    rng = np.random.default_rng(0)
    x, y = unit(rng.standard_normal((23, 6))), unit(rng.standard_normal((40, 5)))
    ours, theirs = aligned_centroids(x, y, (x[:0], y[:0]), UnpairedOptions(restarts=3))
    assert (ours.shape, theirs.shape) == ((3, 4, 6), (3, 4, 5))
    assert start_map(x, y, NO_SEEDS, faiss_cpu.nearest, UnpairedOptions(restarts=3)).shape == (6, 5)


def test_trust_is_the_leading_eigenvector_of_the_likeness_of_maps_and_finds_the_wrong_ones():
    rng = np.random.default_rng(1)
    ours = np.array([unit(rng.standard_normal((10, 6))) for _ in range(9)])
    theirs = ours.copy()
    for t in range(6, 9):
        theirs[t] = theirs[t][rng.permutation(10)]
    weights = trust(ours, theirs)
    maps = np.array([(a.T @ b).ravel() for a, b in zip(ours, theirs, strict=True)])
    maps /= np.linalg.norm(maps, axis=1, keepdims=True)
    leading = np.linalg.eigh(maps @ maps.T - np.eye(9))[1][:, -1]
    expected = np.maximum(leading * np.sign(leading.sum()), 0) ** 2
    np.testing.assert_allclose(weights, expected / expected.max(), atol=1e-4)
    assert weights[6:].max() < weights[:6].min()


def test_one_restart_is_trusted():
    rows = unit(np.eye(4))[None]
    np.testing.assert_array_equal(trust(rows, rows), [1])


def test_an_anchor_of_no_weight_is_as_if_it_were_not_there():
    rng = np.random.default_rng(2)
    points, anchors = unit(rng.standard_normal((5, 4))), unit(rng.standard_normal((3, 4)))
    described = relative(points, anchors, np.array([1, 1, 0]))
    np.testing.assert_allclose(described[:, :2], unit(points @ anchors[:2].T), atol=1e-6)
    assert not described[:, 2].any()


def rows(*pairs):
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)
