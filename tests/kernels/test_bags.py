"""Bags of source rows: everybody is held, and judged, equally often."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from veclink.kernels.bags import first_rows, held_by, row_bags


@given(st.integers(1, 60), st.integers(2, 12), st.floats(0.01, 0.99))
def test_every_row_is_in_equally_many_bags_and_out_of_one(rows, views, share):
    bags = row_bags(rows, views, share, (0, 3))
    held = bags.sum(axis=1)
    assert bags.shape == (rows, views)
    assert set(held.tolist()) == {held_by(views, share)}
    assert 1 <= held[0] < views
    assert held[0] in {1, views - 1, round(share * views)}


def test_bags_repeat_from_their_key_and_differ_between_rounds():
    assert np.array_equal(row_bags(50, 8, 0.65, (1, 2)), row_bags(50, 8, 0.65, (1, 2)))
    assert not np.array_equal(row_bags(50, 8, 0.65, (1, 2)), row_bags(50, 8, 0.65, (1, 3)))


def test_a_row_has_the_same_bags_in_a_larger_cloud():
    assert np.array_equal(row_bags(500, 8, 0.65, (1, 2))[:50], row_bags(50, 8, 0.65, (1, 2)))


def test_views_hold_about_their_share_of_the_rows():
    bags = row_bags(8_000, 8, 0.65, (0, 1))  # five of eight
    np.testing.assert_allclose(bags.mean(axis=0), 5 / 8, atol=0.03)  # five standard deviations


def test_a_sample_of_rows_is_chance_and_the_same_for_other_company():
    rows = np.random.default_rng(0).permutation(5_000)[:2_000]
    chosen = rows[first_rows(rows, 500, 3)]
    assert len(set(chosen.tolist())) == 500
    assert abs(chosen.mean() - 2_500) < 200
    # A row that is chosen among many is chosen among some of them.
    fewer = rows[:1_000]
    assert set(chosen.tolist()) & set(fewer.tolist()) <= set(fewer[first_rows(fewer, 500, 3)].tolist())
    assert first_rows(rows, 2_000, 3).tolist() == list(range(2_000))
    assert len(first_rows(np.empty(0, np.int64), 5, 3)) == 0
