"""CSLS mutual matches against the dense definition, faiss and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from clouds import problem, two_warps, unit
from veclink.backends import faiss_cpu, numpy_tiles
from veclink.kernels.csls import Csls, ceiling, list_length, mutual_matches
from veclink.kernels.hashing import hash_cloud

ENGINES = [numpy_tiles.nearest, faiss_cpu.nearest]


def dense(source, target, k):
    """The definition, with the n x m matrix that the kernel never makes."""
    k = min(k, len(source), len(target))
    s = source.astype(np.float64) @ target.astype(np.float64).T
    r_target = np.sort(s, axis=1)[:, -k:].mean(axis=1)
    r_source = np.sort(s, axis=0)[-k:].mean(axis=0)
    csls = 2 * s - r_target[:, None] - r_source[None, :]
    best, back = csls.argmax(axis=1), csls.argmax(axis=0)
    u = np.flatnonzero(back[best] == np.arange(len(source)))
    v = best[u]
    rest = csls.copy()
    rest[u, v] = -np.inf
    margin = csls[u, v] - np.maximum(rest[u].max(axis=1), rest[:, v].max(axis=0))
    return u, v, csls[u, v], margin


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("k", [1, 3, 50])
def test_matches_score_and_margin_are_those_of_the_definition(engine, k):
    a, b = two_warps(400, (12, 12), 0.3, np.random.default_rng(k))
    found = mutual_matches(a[:300], b[50:], k, engine)
    u, v, score, margin = dense(a[:300], b[50:], k)
    np.testing.assert_array_equal(found.source, u)
    np.testing.assert_array_equal(found.target, v)
    np.testing.assert_allclose(found.score, score, atol=2e-5)
    np.testing.assert_allclose(found.margin, margin, atol=2e-5)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 60), st.integers(2, 60), st.integers(1, 8), st.integers(1, 70), st.integers(0, 10_000))
def test_any_shape_gives_the_exact_answer(n, m, dim, k, seed):
    rng = np.random.default_rng(seed)
    a, b = unit(rng.standard_normal((n, dim)) + 0.1), unit(rng.standard_normal((m, dim)) + 0.1)
    found = mutual_matches(a, b, k, numpy_tiles.nearest)
    u, v, _, margin = dense(a, b, k)
    clear = margin > 1e-5  # near-ties are decided by rounding
    pairs = set(zip(found.source.tolist(), found.target.tolist(), strict=True))
    assert {(i, j) for i, j, c in zip(u.tolist(), v.tolist(), clear, strict=True) if c} <= pairs
    lost = pairs - set(zip(u.tolist(), v.tolist(), strict=True))
    assert all(found.margin[found.source.tolist().index(i)] <= 1e-5 for i, _ in lost)


def test_hard_rows_take_the_exact_path_and_agree():
    """Random clouds at k = 1 leave rows that the lists cannot certify; they must be settled, and be right."""
    rng = np.random.default_rng(3)
    a, b = unit(rng.standard_normal((500, 6))), unit(rng.standard_normal((500, 6)))
    found = mutual_matches(a, b, 1, faiss_cpu.nearest)
    assert found.uncertified > 0
    np.testing.assert_array_equal(found.source, dense(a, b, 1)[0])


def test_ceiling_bounds_every_unlisted_pair_and_is_reached():
    rng = np.random.default_rng(5)
    kth_own, kth_other = rng.uniform(0, 1, 50), rng.uniform(0, 1, 70)
    density = kth_other + rng.uniform(0, 0.3, 70)
    slow = (2 * np.minimum(kth_own[:, None], kth_other[None, :]) - density[None, :]).max(axis=1)
    np.testing.assert_allclose(ceiling(kth_own, kth_other, density), slow, rtol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_nearest_agrees_with_scikit_learn(engine):
    a, b = two_warps(300, (20, 20), 0.2, np.random.default_rng(1))
    similarity, rows = engine(a, b, 10)
    distance, expected = NearestNeighbors(n_neighbors=10, metric="cosine", algorithm="brute").fit(b).kneighbors(a)
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_allclose(similarity, 1 - distance, atol=1e-5)


def test_numpy_engine_puts_equal_similarities_in_row_order():
    base = unit(np.array([[1, 0], [0, 1], [1, 0], [0, 1], [1, 0]], dtype=np.float32))
    _, rows = numpy_tiles.nearest(base[:1], base, 4)
    assert rows[0].tolist() == [0, 2, 4, 1]


def test_swapping_the_sides_gives_the_same_pairs():
    p = problem(300)
    a, b = p.source[:, :24], p.target[:, :24]
    a, b = unit(a), unit(b)
    forth, back = (mutual_matches(x, y, 10, faiss_cpu.nearest) for x, y in ((a, b), (b, a)))
    assert set(zip(forth.source, forth.target, strict=True)) == set(zip(back.target, back.source, strict=True))


@pytest.mark.parametrize(
    ("wanted", "n", "m", "length"), [(50, 500, 900, 50), (50, 24, 900, 2), (5, 900, 60, 5), (50, 3, 3, 1)]
)
def test_lists_are_at_most_a_tenth_of_the_smaller_cloud(wanted, n, m, length):
    assert list_length(wanted, n, m) == length


def test_a_small_cloud_and_its_rotation_are_matched_whole():
    a, _ = two_warps(20, (12, 12), 0.02, np.random.default_rng(0))
    hashes = hash_cloud(a, a[:6], "cloud")
    pairs = mutual_matches(hashes, hashes, list_length(50, 20, 20), faiss_cpu.nearest)
    assert (pairs.source.tolist(), pairs.target.tolist()) == (list(range(20)), list(range(20)))
    whole = mutual_matches(hashes, hashes, 20, faiss_cpu.nearest)  # what the shorter list is for
    assert len(whole.source) < 20


def test_k_is_cut_to_the_smaller_cloud_and_one_row_works():
    a = unit(np.random.default_rng(0).standard_normal((1, 4)))
    found = mutual_matches(a, a, 50, faiss_cpu.nearest)
    assert (found.source.tolist(), found.target.tolist()) == ([0], [0])
    assert np.isfinite(found.margin).all()


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("k", [1, 2, 5, 20])
def test_a_bereft_row_finds_what_it_would_find_were_its_partner_not_there(side, k):
    a, b = two_warps(300, (12, 12), 0.3, np.random.default_rng(k))
    clouds = a[:220], b[40:]
    compared = Csls(*clouds, k, numpy_tiles.nearest)
    found = compared.matches()
    pairs = np.stack([found.source, found.target], axis=1)
    bereft = compared.bereft(pairs, side)
    rows = np.stack([bereft.source, bereft.target], axis=1)
    given = {row[side]: (row[1 - side], i) for i, row in enumerate(rows.tolist())}
    agreed, near = [], []
    for pair in pairs.tolist():
        kept = np.delete(np.arange(len(clouds[1 - side])), pair[1 - side])
        left = [clouds[0], clouds[1]]
        left[1 - side] = left[1 - side][kept]
        alone = mutual_matches(*left, k, numpy_tiles.nearest)
        own, other = (alone.source, alone.target) if side == 0 else (alone.target, alone.source)
        at = np.flatnonzero(own == pair[side])
        expected = kept[other[at[0]]] if len(at) else None
        got = given.get(pair[side], (None, -1))
        agreed.append(got[0] == expected)
        if agreed[-1] and expected is not None:
            for name in ("score", "source_lead", "target_lead", "source_density", "target_density"):
                near.append(abs(getattr(bereft, name)[got[1]] - getattr(alone, name)[at[0]]))
    assert len(near) > 100
    # The others' densities are not taken anew, so a few close calls differ: 3 in 89 with k = 5.
    assert np.mean(agreed) > 0.95
    assert np.mean(near) < 0.01
    assert not any(contains(pairs, rows))


def contains(pairs, rows):
    known = set(map(tuple, pairs.tolist()))
    return [tuple(r) in known for r in rows.tolist()]


def test_a_bereft_row_without_any_other_partner_finds_none():
    a = unit(np.eye(3, dtype=np.float32))
    compared = Csls(a, a[:1], 1, numpy_tiles.nearest)
    assert len(compared.bereft(np.array([[0, 0]]), 0).source) == 0
