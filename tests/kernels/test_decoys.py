"""How many matches are right, from what anchors find without their partner: draws with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from veclink.kernels.decoys import LEAST, TOLERANCE, Trials, right_matches


def draw(rows, right, rate, anchors, rng):
    """Matches of a view of which `right` are right and lonely rows match at `rate`, and one side's trials."""
    matched = right + rng.binomial(rows - right, rate)
    return matched, Trials(rows, anchors, np.ones(rng.binomial(anchors, rate)))


@pytest.mark.parametrize(("right", "rate", "anchors"), [(250, 0.3, 300), (1_500, 0.2, 1_000), (1_500, 0.2, 30)])
def test_the_bounds_hold_the_true_number(right, rate, anchors):
    rng = np.random.default_rng(anchors)
    held, middles = 0, []
    for _ in range(200):
        matched, side = draw(3_000, right, rate, anchors, rng)
        _, other = draw(3_000, right, rate, anchors, rng)
        found = right_matches(matched, [side, other])
        held += found.low <= right <= found.high
        middles.append(found.value)
        assert 0 <= found.low <= found.value <= found.high <= matched
    assert held >= 190  # 95 %, and the tolerance on top
    assert abs(np.mean(middles) - right) < 0.05 * right + 20


def test_the_estimate_solves_the_equation():
    side = Trials(2_000, 10_000, np.ones(2_500))  # rate .25
    found = right_matches(1_250, [side])
    assert found.value == pytest.approx((1_250 - 0.25 * 2_000) / 0.75, rel=1e-3)
    assert found.high - found.value >= 2 * TOLERANCE * found.value


def test_trials_count_by_the_share_of_their_views():
    whole = right_matches(500, [Trials(1_000, 100, np.ones(20))])
    halves = right_matches(500, [Trials(1_000, 100, np.full(40, 0.5))])
    assert halves.value == pytest.approx(whole.value)


def test_without_trials_anything_may_be_right():
    found = right_matches(40.0, [Trials(100, 0, np.empty(0)), Trials(100, 0, np.empty(0))])
    assert (found.low, found.high) == (0, 40)


def test_more_decoys_than_matches_mean_that_nothing_is_right():
    found = right_matches(100, [Trials(1_000, 400, np.ones(200))])
    assert (found.low, found.value, found.high) == (0, 0, LEAST)
