"""Estimates of a run's own quality, on evidence drawn from known probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from veclink.kernels.estimates import DEVIATIONS, Estimate, estimates, shared_by_seeds

MANY = 1e6  # rows, more than count


def test_calibrated_confidences_give_intervals_that_hold_the_truth():
    rng = np.random.default_rng(0)
    held = {"precision": 0, "shared": 0, "recall": 0}
    for _ in range(200):
        shared, lonely = 2_000, 800
        right_votes, wrong_votes = rng.binomial(9, 0.6, shared), rng.binomial(9, 0.15, lonely)
        votes = np.concatenate([right_votes, wrong_votes])
        labels = np.r_[np.ones(shared), np.zeros(lonely)]
        odds = np.log(shared / lonely) + votes * np.log(0.6 / 0.15) + (9 - votes) * np.log(0.4 / 0.85)
        confidence = 1 / (1 + np.exp(-odds))
        seen = votes > 0
        votes, labels, confidence = votes[seen], labels[seen], confidence[seen]
        kept = confidence >= 0.5
        found = estimates(confidence, votes, kept, 0.0, MANY)
        truth = {"precision": labels[kept].mean(), "shared": shared, "recall": labels[kept].sum() / shared}
        for name, value in truth.items():
            estimate = getattr(found, name)
            held[name] += estimate.low <= value <= estimate.high
            assert estimate.low <= estimate.value <= estimate.high
    assert min(held.values()) >= 180


def test_objects_that_no_view_matched_are_counted_from_those_matched_once_and_twice():
    votes = np.array([1] * 10 + [2] * 20 + [9] * 70)
    sure = np.ones(100)
    found = estimates(sure, votes, votes > 1, 0.0, MANY)
    assert found.shared.value == pytest.approx(100 + 10**2 / (2 * 20))
    assert found.recall.value == pytest.approx(90 / 102.5)


def test_no_more_objects_are_shared_than_a_cloud_has_rows():
    votes, sure = np.array([1] * 40 + [2] * 2 + [9] * 58), np.ones(100)
    assert estimates(sure, votes, votes > 0, 0.0, MANY).shared.value == pytest.approx(500)
    found = estimates(sure, votes, votes > 0, 0.0, 180.0)
    assert (found.shared.value, found.shared.high) == (180, 180)
    assert found.recall.value == pytest.approx(100 / 180)


def test_where_no_pair_could_be_seen_twice_nothing_tells_of_the_unseen():
    found = estimates(np.full(100, 0.9), np.ones(100, int), np.ones(100, bool), 0.0, 300.0)
    assert found.shared.value == pytest.approx(90)
    assert found.shared.high == 300
    assert found.recall.low < 0.4


def test_want_of_decoys_widens_the_intervals():
    confidence, votes, kept = np.full(500, 0.9), np.full(500, 9), np.ones(500, bool)
    many, few = (estimates(confidence, votes, kept, slack, MANY) for slack in (1.0, 50.0))
    assert few.precision.high == pytest.approx(1.0)
    assert few.precision.low == pytest.approx(0.9 - DEVIATIONS * 0.1, abs=0.01)
    assert few.shared.high - few.shared.low > 3 * (many.shared.high - many.shared.low)


def test_nothing_kept_is_no_estimate():
    assert estimates(np.array([0.2]), np.array([1]), np.array([False]), 1.0, MANY) is None


def test_seeds_tell_of_objects_that_are_never_matched():
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(300):
        shared, seeds, matched = 1_500, 30, 0.7
        found = rng.binomial(seeds, matched)
        right = shared * matched * rng.normal(1, 0.05)
        estimate = shared_by_seeds(right, 0.05 * right, found, seeds)
        held += estimate.low <= shared <= estimate.high
    assert held >= 275


def test_what_was_found_is_the_least_that_is_shared():
    sure = np.ones(100)
    few = shared_by_seeds(50, 5, 30, 30)
    many = shared_by_seeds(100, 5, 10, 30)
    least = estimates(sure, np.full(100, 9), sure > 0, 0.0, MANY, few)
    assert 97 < least.shared.low < 100 < least.shared.value < 105  # the seeds' highest guess, 66, lies below
    assert 0.95 < least.recall.value < 1 == least.recall.high
    found = estimates(sure, np.full(100, 9), sure > 0, 0.0, MANY, many)
    assert found.shared == many
    assert found.recall.value == pytest.approx(100 / many.value)
    # The links' own doubt widens what the seeds say.
    assert found.recall.low == pytest.approx(100 * (1 - DEVIATIONS * 0.01) / many.high)


def test_seeds_that_speak_of_fewer_objects_than_were_found_leave_no_recall_of_one():
    sure, known = np.ones(100), Estimate(95.0, 75.0, 125.0)
    found = estimates(sure, np.full(100, 9), sure > 0, 0.0, MANY, known)
    assert found.shared.value == pytest.approx(stats.truncnorm.mean(1 / 3, np.inf, 95, 15))
    assert found.recall.value == pytest.approx(100 / found.shared.value)
    assert (found.shared.high, found.recall.high) == (125, 1.0)


def test_too_modest_confidences_leave_recall_in_its_interval():
    shared, right, seeds = 1_500, 1_485, 8
    modest = np.full(right, 0.98)
    known = shared_by_seeds(right, 5.0, seeds, seeds)
    found = estimates(modest, np.full(right, 3), modest > 0, 5.0, MANY, known).recall
    assert found.low <= right / shared <= found.high


def test_without_any_seed_found_the_shared_objects_are_hardly_known():
    estimate = shared_by_seeds(10, 5, 0, 15)
    assert estimate.high > DEVIATIONS * 100
