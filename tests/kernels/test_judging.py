"""Verdicts of a round by hand, and the evidence of several together."""

from __future__ import annotations

import numpy as np
import pytest

from veclink.kernels.judging import (
    Decoys,
    Evidence,
    Judged,
    Pairs,
    agreement,
    confidence_floor,
    first_anchors,
    judge,
    promoted,
    together,
    votes_alone,
)

NOBODY = np.empty((0, 2), np.int64)


def pairs_of(rows, votes, opportunities=None, lead=None):
    rows, votes = np.array(rows, np.int64), np.array(votes, np.int64)
    chances = np.full(len(rows), 4) if opportunities is None else np.array(opportunities)
    features = np.zeros((len(rows), 5))
    if lead is not None:
        features[:, 1] = features[:, 2] = lead
    return Pairs(rows[:, 0], rows[:, 1], votes, chances, features)


def anchors_of(count):
    return np.stack([np.arange(count)] * 2, axis=1)


def none():
    return pairs_of(NOBODY, [])


def test_with_few_decoys_the_votes_speak():
    pairs = pairs_of([[0, 0], [1, 1], [2, 2]], [4, 2, 4])
    decoys = Decoys(pairs_of([[3, 4]], [2]), pairs_of([[5, 6]], [1]), anchors_of(3))
    judged = judge(Evidence(pairs, decoys), (9, 9))
    np.testing.assert_allclose(judged.confidence, [5 / 6, 3 / 6, 5 / 6])
    np.testing.assert_allclose(votes_alone(pairs), [5 / 6, 3 / 6, 5 / 6])
    np.testing.assert_allclose(judged.decoys, [3 / 6, 2 / 6])
    assert judged.by_model == pytest.approx((1 / 6 + 3 / 6 + 1 / 6) / 2)


def test_confidences_are_found_again_by_pair():
    judged = Judged(pairs_of([[0, 0], [0, 3], [2, 2]], [1, 1, 1]), np.array([0.9, 0.2, 0.6]), np.empty(0), np.empty(0))
    assert judged.of(pairs_of([[2, 2], [2, 0], [0, 3], [7, 7]], [1, 1, 1, 1])).tolist() == [0.6, 0.0, 0.2, 0.0]
    assert judged.of(none()).tolist() == []


def test_decoys_count_the_wrong_pairs_among_the_sure_ones():
    doubtful = pairs_of([[i, i] for i in range(24)], [1] * 24), np.full(24, 0.5)  # 12 wrong ones, 4 for each decoy
    judged = Judged(*doubtful, np.array([0.9, 0.6, 0.2]), np.array([4.0, 4.0, 9.0]))
    assert judged.wrong_from(0.5) == (8.0, pytest.approx(4 * np.sqrt(3)))
    assert judged.wrong_from(0.95) == (0.0, 4.0)
    # Where the trials count otherwise, half of the difference is doubt.
    assert judged.wrong_from(0.1) == (12.0, pytest.approx(np.hypot(4 * np.sqrt(4), 5 / 2)))


def test_trials_say_how_many_wrong_pairs_a_decoy_stands_for():
    at = np.arange(20)
    good = Pairs(at, at, np.full(20, 3), np.full(20, 3), np.zeros((20, 5)))
    judged = judge(Evidence(good, Decoys(good.take(at[:4]), good.take(at[4:6]), anchors_of(20))), (50, 40))
    right = (20 - 0.2 * 50) / 0.8, (20 - 0.1 * 40) / 0.9  # as either side has it
    low, high = ((n - r) / 2 / 20 for n, r in ((50, max(right)), (50, min(right))))
    assert judged.by_trials.shape == (6,)
    assert 0.8 * low < judged.by_trials[0] < 1.2 * high
    assert judged.by_trials[0] - judged.by_trials[-1] == pytest.approx(10 / 2 / 20)


def test_votes_can_be_asked_for_alone_and_bounds_left_out():
    rng = np.random.default_rng(0)
    at = np.arange(400)
    good = Pairs(at, at, np.full(400, 3), np.full(400, 3), rng.standard_normal((400, 5)))
    # Half of the anchors are matched without their partner, as half of all 800 rows are: hardly any pair is right.
    found = Evidence(good, Decoys(good.take(at[:100]), good.take(at[100:200]), anchors_of(200)))
    votes, free, bounded = (judge(found, (800, 800), kind).confidence for kind in ("votes", "free", "bounded"))
    np.testing.assert_allclose(votes, votes_alone(good))
    assert bounded.sum() < 0.5 * free.sum()


def test_decoys_are_trials_by_the_row_that_lost_its_partner():
    decoys = Decoys(pairs_of([[1, 5], [1, 6], [2, 5]], [1, 2, 4]), pairs_of([[7, 3]], [2]), anchors_of(10))
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
    decoys = Decoys(drawn(found, 0.0), drawn(found, 0.0), anchors_of(anchors))
    judged = judge(Evidence(Pairs(at, at, *both), decoys), (rows, rows))
    assert abs(judged.confidence.sum() - right) < 0.25 * right + 60
    assert judged.confidence[:right].mean() > judged.confidence[right:].mean() + 0.3
    sure = judged.confidence >= 0.5
    counted, deviation = judged.wrong_from(0.5)
    wrong = sure[right:].sum()
    assert abs(counted - wrong) < 3 * deviation + 0.3 * wrong


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


def test_rounds_together_are_one_with_as_many_views():
    first = pairs_of([[0, 0], [1, 1]], [4, 2])
    second, third = pairs_of([[0, 0]], [2]), pairs_of([[2, 2]], [1])
    pairs = together([Evidence(p, Decoys(none(), none(), NOBODY)) for p in (first, second, third)]).pairs
    assert np.stack([pairs.source, pairs.target], axis=1).tolist() == [[0, 0], [1, 1], [2, 2]]
    assert pairs.votes.tolist() == [6, 2, 1]
    assert pairs.opportunities.tolist() == [12, 12, 12]


def test_together_only_anchors_that_every_round_asked_have_decoys():
    pairs = pairs_of([[8, 8]], [1])
    first = Evidence(pairs, Decoys(pairs_of([[0, 5], [1, 5]], [1, 2]), pairs_of([[6, 1]], [3]), anchors_of(2)))
    second = Evidence(pairs, Decoys(pairs_of([[1, 5], [2, 7]], [2, 1]), none(), np.array([[1, 1], [2, 2]])))
    decoys = together([first, second]).decoys
    assert decoys.anchors.tolist() == [[1, 1]]
    assert (decoys.no_target.source.tolist(), decoys.no_target.votes.tolist()) == ([1], [4])
    assert (decoys.no_source.target.tolist(), decoys.no_source.opportunities.tolist()) == ([1], [8])


def test_one_round_together_is_itself():
    pairs = pairs_of([[0, 0], [3, 1]], [4, 2], lead=0.5)
    found = Evidence(pairs, Decoys(pairs_of([[1, 4]], [2]), none(), anchors_of(2)))
    again = together([found])
    for name in ("source", "target", "votes", "opportunities", "features"):
        np.testing.assert_array_equal(getattr(again.pairs, name), getattr(pairs, name))
    assert again.decoys.no_target.source.tolist() == [1]


def test_features_are_means_weighted_by_votes():
    a, b = pairs_of([[0, 0]], [3], lead=[1.0]), pairs_of([[0, 0]], [1], lead=[5.0])
    pairs = together([Evidence(p, Decoys(none(), none(), NOBODY)) for p in (a, b)]).pairs
    np.testing.assert_allclose(pairs.features[0], [0, 2, 2, 0, 0])


@pytest.mark.parametrize(
    ("precision", "floor"), [(None, 0.5), (0.85, 0.7), (0.9, 0.9), (0.99, float("inf")), (0.1, 0.5)]
)
def test_floor_keeps_as_many_as_the_wished_precision_allows(precision, floor):
    assert confidence_floor(np.array([0.7, 0.95, 0.9, 0.4]), 0.5, precision) == floor
