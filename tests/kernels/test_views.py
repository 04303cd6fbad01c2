"""Schedule and anchor subsets."""

from __future__ import annotations

import math

import numpy as np
import pytest

from clouds import unit
from veclink.kernels.views import Schedule, farthest_points, plan_views, schedule, two_halves


def cloud(n, seed=0):
    return unit(np.random.default_rng(seed).standard_normal((n, 8)))


@pytest.mark.parametrize(("anchors", "seeds"), [(15, 15), (860, 15), (1649, 15), (100, 30)])
def test_schedule_is_that_of_the_paper(anchors, seeds):
    scale = 1 + 0.3 * math.log(anchors / seeds)
    expected = Schedule(math.ceil(5 * scale), max(5, math.ceil(0.4 * anchors / scale)))
    assert schedule(anchors, seeds, 5, 0.4, 0.3, 5) == expected


def test_total_anchor_use_grows_linearly():
    use = [s.views * s.size / n for n in (200, 2000, 20000) for s in [schedule(n, 15, 5, 0.4, 0.3, 5)]]
    assert max(use) / min(use) < 1.1


def slow_farthest(vectors, start, size):
    chosen = [start]
    while len(chosen) < min(size, len(vectors)):
        rest = [i for i in range(len(vectors)) if i not in chosen]
        chosen.append(max(rest, key=lambda i: (min(1 - float(vectors[i] @ vectors[c]) for c in chosen), -i)))
    return chosen


def test_farthest_points_are_those_of_the_greedy_definition():
    vectors = cloud(40)
    assert farthest_points(vectors, 7, 15).tolist() == slow_farthest(vectors, 7, 15)


def test_farthest_points_of_copies_are_distinct():
    assert sorted(farthest_points(np.repeat(cloud(1), 6, axis=0), 2, 10).tolist()) == [0, 1, 2, 3, 4, 5]


def test_a_round_uses_every_anchor_before_any_twice():
    vectors = cloud(100)
    views = plan_views(vectors, 5, Schedule(8, 30), 0, 1)
    assert [len(v.anchors) for v in views] == [25] * 8
    first = np.concatenate([v.anchors for v in views[:4]])
    assert sorted(first.tolist()) == list(range(100))
    assert all(len(set(v.anchors.tolist())) == 25 for v in views)


def test_views_are_drawn_again_from_the_same_key_and_differ_between_rounds():
    vectors = cloud(60)
    one, two = (plan_views(vectors, 5, Schedule(4, 20), 3, 2) for _ in range(2))
    other = plan_views(vectors, 5, Schedule(4, 20), 3, 3)
    assert all((a.anchors == b.anchors).all() for a, b in zip(one, two, strict=True))
    assert any((a.anchors != b.anchors).any() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(("promoted", "size", "held"), [(0, 6, 0), (10, 6, 0), (10, 40, 10)])
def test_views_that_would_be_alike_are_one_view_that_counts_for_all(promoted, size, held):
    views = plan_views(cloud(promoted) if promoted else np.empty((0, 8), np.float32), 15, Schedule(5, size), 0, 1)
    assert [(len(v.anchors), v.count) for v in views] == [(held, 5)]


def test_two_halves_leave_out_every_pair_once():
    one, two = two_halves(11, 3)
    assert sorted([*one.anchors.tolist(), *two.anchors.tolist()]) == list(range(11))
    assert {len(one.anchors), len(two.anchors)} == {5, 6}
    assert one.anchors.tolist() == two_halves(11, 3)[0].anchors.tolist()
