"""How many matches are right, from what anchors find without their partner: draws with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from veclink.kernels.decoys import LEAST, MISSED, TOLERANCE, Trials, right_matches


def draw(rows, right, rate, anchors, rng):
    """Matches of a view of which `right` are right and lonely rows match at `rate`, and one side's trials.

    Anchors match a little more often: such that the equation gives MISSED too few.
    """
    seen = right / (1 + MISSED)
    expected = right + (rows - right) * rate
    more = (expected - seen) / (rows - seen)
    matched = right + rng.binomial(rows - right, rate)
    return matched, Trials(rows, anchors, np.ones(rng.binomial(anchors, more)))


@pytest.mark.parametrize(("right", "rate", "anchors"), [(250, 0.3, 300), (1_500, 0.2, 1_000), (1_500, 0.2, 30)])
def test_the_true_number_is_within_two_deviations(right, rate, anchors):
    rng = np.random.default_rng(anchors)
    held, middles = 0, []
    for _ in range(200):
        matched, side = draw(3_000, right, rate, anchors, rng)
        _, other = draw(3_000, right, rate, anchors, rng)
        value, deviation = right_matches(matched, [side, other])
        held += abs(value - right) <= 2 * deviation
        middles.append(value)
        assert 0 <= value <= matched
    assert held >= 190  # 95 %, and the tolerance on top
    assert abs(np.mean(middles) - right) < 0.05 * right + 20


def test_the_estimate_solves_the_equation():
    side = Trials(2_000, 10_000, np.ones(2_500))  # rate .25
    value, deviation = right_matches(1_250, [side])
    assert value == pytest.approx((1_250 - 0.25 * 2_000) / 0.75 * (1 + MISSED), rel=1e-3)
    assert deviation >= TOLERANCE * value


def test_trials_count_by_the_share_of_their_views():
    whole = right_matches(500, [Trials(1_000, 100, np.ones(20))])
    halves = right_matches(500, [Trials(1_000, 100, np.full(40, 0.5))])
    assert halves[0] == pytest.approx(whole[0])


def test_without_trials_anything_may_be_right():
    nobody = Trials(100, 0, np.empty(0))
    assert right_matches(40.0, [nobody, nobody]) == (40, np.inf)


def test_more_decoys_than_matches_mean_that_nothing_is_right_but_never_surely():
    value, deviation = right_matches(100, [Trials(1_000, 400, np.ones(200))])
    assert value == 0
    assert deviation >= LEAST
