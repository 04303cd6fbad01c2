"""Verdicts of a round by hand, and their mean over rounds."""

from __future__ import annotations

import numpy as np
import pytest

from veclink.kernels.judging import (
    Judged,
    Pairs,
    agreement,
    average,
    confidence_floor,
    confidences,
    first_anchors,
    promoted,
    votes_alone,
)

NONE = np.empty(0, np.int64)


def pairs_of(rows, votes, opportunities=None, lead=None):
    rows, votes = np.array(rows, np.int64), np.array(votes, np.int64)
    chances = np.full(len(rows), 4) if opportunities is None else np.array(opportunities)
    features = np.zeros((len(rows), 5))
    if lead is not None:
        features[:, 1] = features[:, 2] = lead
    return Pairs(rows[:, 0], rows[:, 1], votes, chances, features)


def test_without_decoys_the_votes_speak_and_decoys_are_never_right():
    pairs = pairs_of([[0, 0], [1, 1], [2, 2]], [4, 2, 4])
    decoy = np.array([False, False, True])
    np.testing.assert_allclose(confidences(pairs, decoy), [5 / 6, 3 / 6, 0])
    np.testing.assert_allclose(votes_alone(pairs), [5 / 6, 3 / 6, 5 / 6])


def test_first_anchors_are_agreed_by_all_maps_and_lead_clearly():
    pairs = pairs_of([[0, 0], [1, 1], [2, 2], [3, 3]], [2, 2, 1, 2], lead=[0.1, 0.3, 0.9, 0.2])
    assert first_anchors(pairs, 2, 0.5, 1).tolist() == [1, 3]
    assert first_anchors(pairs, 2, 0.1, 3).tolist() == [1, 3, 0]


def test_agreement_is_the_share_of_a_maps_pairs_that_all_maps_propose():
    pairs = pairs_of([[0, 0], [1, 1], [2, 2], [3, 3]], [3, 3, 2, 1])  # 9 proposals of 3 maps, 2 pairs in all
    assert agreement(pairs, 3) == pytest.approx(6 / 9)
    assert agreement(pairs.take(np.empty(0, np.int64)), 3) == 0


def test_promotion_is_one_to_one_surest_first_and_bounded():
    pairs = pairs_of([[0, 0], [0, 1], [1, 1], [2, 2]], [1, 1, 1, 1])
    confidence = np.array([0.9, 0.8, 0.7, 0.4])
    assert promoted(pairs, confidence, 0.5, 9).tolist() == [0, 2]
    assert promoted(pairs, confidence, 0.5, 1).tolist() == [0]


def test_the_mean_counts_the_rounds_that_could_judge_a_pair():
    first = Judged(pairs_of([[0, 0], [1, 1]], [4, 2]), np.array([1.0, 0.6]), NONE, NONE)
    second = Judged(pairs_of([[0, 0]], [2]), np.array([0.8]), np.array([1]), np.array([7]))  # row 1 was hidden
    third = Judged(pairs_of([[2, 2]], [1]), np.array([0.3]), NONE, NONE)
    pairs, confidence = average([first, second, third])
    assert np.stack([pairs.source, pairs.target], axis=1).tolist() == [[0, 0], [1, 1], [2, 2]]
    np.testing.assert_allclose(confidence, [1.8 / 3, 0.6 / 2, 0.3 / 3])
    assert pairs.votes.tolist() == [6, 2, 1]
    assert pairs.opportunities.tolist() == [8, 4, 4]


def test_features_are_means_weighted_by_votes():
    a, b = pairs_of([[0, 0]], [3], lead=[1.0]), pairs_of([[0, 0]], [1], lead=[5.0])
    pairs, _ = average([Judged(p, np.ones(1), NONE, NONE) for p in (a, b)])
    np.testing.assert_allclose(pairs.features[0], [0, 2, 2, 0, 0])


@pytest.mark.parametrize(
    ("precision", "floor"), [(None, 0.5), (0.85, 0.7), (0.9, 0.9), (0.99, float("inf")), (0.1, 0.5)]
)
def test_floor_keeps_as_many_as_the_wished_precision_allows(precision, floor):
    assert confidence_floor(np.array([0.7, 0.95, 0.9, 0.4]), 0.5, precision) == floor
