"""Bags and folds: everybody has a turn, equally often, and the same one whenever it is drawn again."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from veclink.kernels.bags import balanced_bags, hidden_fold, row_draws


@given(st.integers(1, 60), st.integers(2, 12), st.floats(0.01, 0.99))
def test_every_anchor_is_in_equally_many_bags_and_out_of_one(anchors, views, share):
    bags = balanced_bags(anchors, views, share, (0, 3))
    held = bags.sum(axis=1)
    assert bags.shape == (anchors, views)
    assert held.min() == held.max()
    assert 1 <= held[0] < views
    assert held[0] in {1, views - 1, round(share * views)}


def test_bags_repeat_from_their_key_and_differ_between_rounds():
    assert np.array_equal(balanced_bags(50, 8, 0.65, (1, 2)), balanced_bags(50, 8, 0.65, (1, 2)))
    assert not np.array_equal(balanced_bags(50, 8, 0.65, (1, 2)), balanced_bags(50, 8, 0.65, (1, 3)))


def test_every_anchor_is_hidden_once_in_as_many_rounds_as_there_are_folds():
    rows = np.random.default_rng(0).permutation(10_000)[:1_000]
    rounds = [hidden_fold(rows, 5, 7, number) for number in range(2, 7)]
    hidden = np.concatenate([h.all for h in rounds])
    assert sorted(hidden.tolist()) == list(range(1_000))
    for h in rounds:
        assert not set(h.no_target.tolist()) & set(h.no_source.tolist())
        assert 60 < len(h.no_target) < 140
        assert 60 < len(h.no_source) < 140


def test_the_side_that_is_hidden_changes_with_every_turn():
    rows = np.arange(1_000)
    first, second = hidden_fold(rows, 5, 7, 3), hidden_fold(rows, 5, 7, 8)
    assert np.array_equal(first.no_target, second.no_source)
    assert np.array_equal(first.no_source, second.no_target)


def test_draws_of_a_row_depend_on_nothing_but_row_and_seed():
    rows = np.arange(20_000)
    assert np.array_equal(row_draws(rows[::-1], 3), row_draws(rows, 3)[::-1])
    assert not np.array_equal(row_draws(rows, 3), row_draws(rows, 4))
    counts = np.bincount((row_draws(rows, 3) % np.uint64(5)).astype(np.int64))
    assert counts.min() > 3_800  # 4,000 each, give or take 57
