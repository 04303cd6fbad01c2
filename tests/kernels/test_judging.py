"""Verdicts of a round by hand, and their mean over rounds."""

from __future__ import annotations

import numpy as np
import pytest

from veclink.kernels.judging import (
    Decoys,
    Judged,
    Pairs,
    agreement,
    confidence_floor,
    confidences,
    first_anchors,
    promoted,
    together,
    votes_alone,
)


def pairs_of(rows, votes, opportunities=None, lead=None):
    rows, votes = np.array(rows, np.int64), np.array(votes, np.int64)
    chances = np.full(len(rows), 4) if opportunities is None else np.array(opportunities)
    features = np.zeros((len(rows), 5))
    if lead is not None:
        features[:, 1] = features[:, 2] = lead
    return Pairs(rows[:, 0], rows[:, 1], votes, chances, features)


def test_with_few_decoys_the_votes_speak():
    pairs = pairs_of([[0, 0], [1, 1], [2, 2]], [4, 2, 4])
    decoys = Decoys(pairs_of([[3, 4]], [2]), pairs_of([[5, 6]], [1]), 3)
    np.testing.assert_allclose(confidences(pairs, decoys, (9, 9)), [5 / 6, 3 / 6, 5 / 6])
    np.testing.assert_allclose(votes_alone(pairs), [5 / 6, 3 / 6, 5 / 6])


def test_votes_can_be_asked_for_alone_and_bounds_left_out():
    rng = np.random.default_rng(0)
    at = np.arange(400)
    good = Pairs(at, at, np.full(400, 3), np.full(400, 3), rng.standard_normal((400, 5)))
    # Half of the anchors are matched without their partner, as half of all 800 rows are: hardly any pair is right.
    lost = Decoys(good.take(at[:100]), good.take(at[100:200]), 200)
    votes = confidences(good, lost, (800, 800), "votes")
    free, bounded = (confidences(good, lost, (800, 800), kind) for kind in ("free", "bounded"))
    np.testing.assert_allclose(votes, votes_alone(good))
    assert bounded.sum() < 0.5 * free.sum()


def test_decoys_are_trials_by_the_row_that_lost_its_partner():
    decoys = Decoys(pairs_of([[1, 5], [1, 6], [2, 5]], [1, 2, 4]), pairs_of([[7, 3]], [2]), 10)
    one, other = decoys.trials((100, 200))
    assert (one.rows, one.anchors, sorted(one.found.tolist())) == (100, 10, [0.75, 1.0])
    assert (other.rows, other.anchors, other.found.tolist()) == (200, 10, [0.5])


@pytest.mark.parametrize("right", [250, 600, 1_200])
def test_confidences_add_up_to_the_right_pairs_however_few_they_are(right):
    rng = np.random.default_rng(right)
    rows, anchors = 3_000, right
    lonely = rng.random(rows - right) < 0.3

    def drawn(count, lead):
        features = rng.standard_normal((count, 5)) + np.array([0, lead, lead, 0, 0])
        at = np.arange(count)
        return Pairs(at, at, rng.binomial(2, 0.3 + lead / 4, count) + 1, np.full(count, 3), features)

    good, bad = drawn(right, 1.5), drawn(int(lonely.sum()), 0.0)
    both = [np.concatenate([getattr(x, f) for x in (good, bad)]) for f in ("votes", "opportunities", "features")]
    at = np.arange(right + len(bad))
    found = int((rng.random(anchors) < 0.3).sum())
    decoys = Decoys(drawn(found, 0.0), drawn(found, 0.0), anchors)
    confidence = confidences(Pairs(at, at, *both), decoys, (rows, rows))
    assert abs(confidence.sum() - right) < 0.25 * right + 60
    assert confidence[:right].mean() > confidence[right:].mean() + 0.3


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


def test_rounds_stand_side_by_side_and_what_one_did_not_propose_counts_as_nothing():
    first = Judged(pairs_of([[0, 0], [1, 1]], [4, 2]), np.array([1.0, 0.6]))
    second = Judged(pairs_of([[0, 0]], [2]), np.array([0.8]))
    third = Judged(pairs_of([[2, 2]], [1]), np.array([0.3]))
    pairs, by_round = together([first, second, third])
    assert np.stack([pairs.source, pairs.target], axis=1).tolist() == [[0, 0], [1, 1], [2, 2]]
    np.testing.assert_allclose(by_round, [[1.0, 0.8, 0], [0.6, 0, 0], [0, 0, 0.3]])
    assert pairs.votes.tolist() == [6, 2, 1]
    assert pairs.opportunities.tolist() == [8, 4, 4]


def test_features_are_means_weighted_by_votes():
    a, b = pairs_of([[0, 0]], [3], lead=[1.0]), pairs_of([[0, 0]], [1], lead=[5.0])
    pairs, _ = together([Judged(p, np.ones(1)) for p in (a, b)])
    np.testing.assert_allclose(pairs.features[0], [0, 2, 2, 0, 0])


@pytest.mark.parametrize(
    ("precision", "floor"), [(None, 0.5), (0.85, 0.7), (0.9, 0.9), (0.99, float("inf")), (0.1, 0.5)]
)
def test_floor_keeps_as_many_as_the_wished_precision_allows(precision, floor):
    assert confidence_floor(np.array([0.7, 0.95, 0.9, 0.4]), 0.5, precision) == floor
