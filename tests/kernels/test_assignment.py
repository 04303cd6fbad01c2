"""Quadratic assignment against scipy, brute force and planted answers."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.optimize import quadratic_assignment as scipy_assignment

from veclink.kernels.assignment import _gains, _squared_distances, assignment_scores, quadratic_assignment


def graph(nodes, rng, width=8):
    rows = rng.standard_normal((nodes, width))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows @ rows.T


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 12), st.integers(0, 10_000))
def test_gain_of_every_exchange_is_the_difference_of_the_sums(nodes, seed):
    rng = np.random.default_rng(seed)
    a, b, linear = (
        graph(nodes, rng),
        graph(nodes, rng) + np.diag(rng.random(nodes)),
        rng.standard_normal((nodes, nodes)),
    )
    order = rng.permutation(nodes)[None]
    before = assignment_scores(a, b, linear, order)[0]
    gains = _gains(a, b, linear, order, _squared_distances(a))[0]
    for r in range(nodes):
        for s in range(nodes):
            other = order.copy()
            other[0, [r, s]] = order[0, [s, r]]
            assert gains[r, s] == pytest.approx(assignment_scores(a, b, linear, other)[0] - before, abs=1e-9)


@pytest.mark.parametrize("draw", range(4))
def test_small_graphs_get_the_best_of_all_permutations(draw):
    rng = np.random.default_rng(draw)
    a, b, linear = graph(6, rng), graph(6, rng), rng.standard_normal((6, 6))
    every = np.array(list(permutations(range(6))))
    order, total = quadratic_assignment(a, b, linear, 30, rng)
    assert total == pytest.approx(assignment_scores(a, b, linear, every).max())
    assert total == pytest.approx((a * b[np.ix_(order, order)]).sum() + linear[np.arange(6), order].sum())


@pytest.mark.parametrize("nodes", [20, 30])
def test_no_worse_than_the_best_of_scipy(nodes):
    rng = np.random.default_rng(nodes)
    a, b = graph(nodes, rng), graph(nodes, rng)
    _, total = quadratic_assignment(a, b, np.zeros((nodes, nodes)), 200, rng)
    theirs = [
        scipy_assignment(a, b, method=method, options={"maximize": True, "rng": np.random.default_rng(i)}).fun
        for method in ("faq", "2opt")
        for i in range(5)
    ]
    assert total >= max(theirs) - 1e-9


def test_a_shuffled_noisy_copy_is_unshuffled():
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((25, 40)) * np.linspace(1, 0.2, 40)
    shuffle = rng.permutation(25)
    noisy = rows[shuffle] + 0.1 * rng.standard_normal((25, 40))
    order, _ = quadratic_assignment(rows @ rows.T, noisy @ noisy.T, np.zeros((25, 25)), 100, rng)
    np.testing.assert_array_equal(shuffle[order], np.arange(25))


def test_linear_terms_alone_are_the_linear_assignment_of_scipy():
    rng = np.random.default_rng(2)
    linear, nothing = rng.standard_normal((8, 8)), np.zeros((8, 8))
    order, total = quadratic_assignment(nothing, nothing, linear, 200, rng)
    rows, expected = linear_sum_assignment(linear, maximize=True)
    np.testing.assert_array_equal(order, expected)
    assert total == pytest.approx(linear[rows, expected].sum())


def test_linear_terms_decide_between_equals():
    """All nodes alike: only the linear terms say who is who."""
    linear = np.eye(7)[::-1].copy()
    order, _ = quadratic_assignment(np.eye(7), np.eye(7), linear, 50, np.random.default_rng(0))
    np.testing.assert_array_equal(order, np.arange(7)[::-1])


def test_same_key_same_answer():
    rng = np.random.default_rng(3)
    a, b = graph(20, rng), graph(20, rng)
    first, second = (quadratic_assignment(a, b, np.zeros((20, 20)), 5, np.random.default_rng(9))[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
