"""Posterior, threshold and one-to-one choice against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from veclink.kernels.posterior import one_to_one, otsu_threshold, posterior_mean


def test_posterior_is_the_mean_of_the_beta_distribution():
    votes, chances = np.array([0, 3, 12]), np.array([0, 5, 12])
    expected = [stats.beta(1 + v, 1 + n - v).mean() for v, n in zip(votes, chances, strict=True)]
    np.testing.assert_allclose(posterior_mean(votes, chances), expected)


def slow_otsu(values, bins):
    """Within-class variance, by trying every threshold on the binned values."""
    center = (np.minimum(np.floor(np.asarray(values) * bins + 1e-9), bins - 1) + 0.5) / bins
    best, answer = np.inf, None
    for edge in np.arange(1, bins) / bins:
        low, high = center[center < edge], center[center > edge]
        if len(low) and len(high):
            within = len(low) * low.var() + len(high) * high.var()
            if within < best - 1e-9:
                best, answer = within, edge
    return answer


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=60))
def test_otsu_minimises_the_variance_within_the_two_classes(values):
    expected = slow_otsu(values, 20)
    found = otsu_threshold(values, np.ones(len(values)), 20)
    if expected is not None:
        center = (np.minimum(np.floor(np.asarray(values) * 20 + 1e-9), 19) + 0.5) / 20
        assert ((center > found) == (center > expected)).all() or _as_good(center, found, expected)


def _as_good(center, one, other):
    def within(edge):
        low, high = center[center < edge], center[center > edge]
        return len(low) * low.var() + len(high) * high.var()

    return abs(within(one) - within(other)) < 1e-9


def test_otsu_splits_two_heaps_between_them():
    threshold = otsu_threshold([0.1, 0.12, 0.85, 0.9], [100, 50, 20, 30], 100)
    assert 0.12 < threshold <= 0.85


def test_counts_weigh_like_repeated_values():
    values, counts = [0.1, 0.4, 0.8], [5, 3, 2]
    assert otsu_threshold(values, counts, 100) == otsu_threshold(np.repeat(values, counts), np.ones(10), 100)


@pytest.mark.parametrize("value", [0.0, 0.29, 6 / 7, 1.0])
def test_values_in_one_bin_are_all_kept(value):
    assert otsu_threshold([value] * 4, [1] * 4, 100) <= value


def test_nothing_to_judge_keeps_nothing():
    assert otsu_threshold([], [], 100) == 1.0


def slow_greedy(source, target, confidence):
    order = sorted(range(len(source)), key=lambda i: (-confidence[i], source[i], target[i]))
    used_s, used_t, chosen = set(), set(), []
    for i in order:
        if source[i] not in used_s and target[i] not in used_t:
            chosen.append(i)
            used_s.add(source[i])
            used_t.add(target[i])
    return chosen


@settings(max_examples=100, deadline=None)
@given(st.sets(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=60), st.integers(0, 1000))
def test_one_to_one_is_the_greedy_choice(pairs, seed):
    pairs = sorted(pairs)
    source, target = (np.array([p[i] for p in pairs], dtype=np.int64) for i in (0, 1))
    confidence = np.random.default_rng(seed).integers(0, 4, len(pairs)) / 4.0  # many ties
    assert one_to_one(source, target, confidence).tolist() == slow_greedy(source, target, confidence)
