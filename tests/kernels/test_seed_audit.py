"""Seeds under a map that was fitted without them: right ones are near, wrong ones anywhere."""

from __future__ import annotations

import numpy as np
import pytest

from clouds import problem
from veclink.kernels.affine import cca_maps, unit_rows
from veclink.kernels.seed_audit import partner_ranks, wrong_seeds

P = problem(1_200, seeds=20, draw=4)
CLOUDS = P.source, P.target
KNOWN = np.array([pair for pair in sorted(P.truth.items()) if pair not in set(map(tuple, P.seeds.tolist()))][:200])
ANCHORS = P.source[KNOWN[:, 0]], P.target[KNOWN[:, 1]]
POINTS = len(P.source), len(P.target)


def ranks_of(rows):
    return partner_ranks(CLOUDS, ANCHORS, (P.source[rows[:, 0]], P.target[rows[:, 1]]), 1.0, 256)


def test_ranks_are_those_of_the_definition():
    means = [c.mean(axis=0) for c in CLOUDS]
    maps = cca_maps(*[unit_rows(a - m) for a, m in zip(ANCHORS, means, strict=True)], 1.0, 256)
    spaces = [unit_rows((c - m) @ w) for c, m, w in zip(CLOUDS, means, maps, strict=True)]
    cosine = spaces[0] @ spaces[1].T
    expected = [[(cosine[a] > cosine[a, b]).mean(), (cosine[:, b] > cosine[a, b]).mean()] for a, b in P.seeds]
    np.testing.assert_allclose(ranks_of(P.seeds), expected, atol=0.002)  # near-ties are decided by rounding


def test_right_seeds_stand_the_audit():
    assert not wrong_seeds(ranks_of(P.seeds), POINTS, 0.01).any()


@pytest.mark.parametrize("draw", range(5))
def test_a_wrong_seed_and_two_swapped_ones_are_told(draw):
    rng = np.random.default_rng(draw)
    rows = P.seeds.copy()
    bad = rng.permutation(20)[:3]
    rows[bad[0], 1] = (rows[bad[0], 1] + 400) % len(P.target)
    rows[bad[1:], 1] = rows[bad[:0:-1], 1]
    assert np.flatnonzero(wrong_seeds(ranks_of(rows), POINTS, 0.01)).tolist() == sorted(bad.tolist())


def test_where_most_seem_wrong_none_is_dropped():
    ranks = np.full((20, 2), 0.4)
    ranks[:9] = 0
    assert not wrong_seeds(ranks, POINTS, 0.01).any()
    ranks[:11] = 0
    assert wrong_seeds(ranks, POINTS, 0.01).sum() == 9


def test_in_a_small_cloud_a_few_places_are_near():
    ranks = np.zeros((20, 2))
    ranks[0], ranks[1] = 5 / 60, 30 / 60
    assert np.flatnonzero(wrong_seeds(ranks, (60, 60), 0.01)).tolist() == [1]
