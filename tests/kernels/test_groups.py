"""Groups against a slow joining of sets."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from veclink.kernels.groups import groups


def joined(cloud, first, second, confidence):
    """Sets of points, and links left out, by the words of the docstring."""
    sets, left = [{i} for i in range(len(cloud))], set()
    for i in sorted(range(len(first)), key=lambda i: (-confidence[i], i)):
        a, b = (next(s for s in sets if p in s) for p in (first[i], second[i]))
        if a is b:
            continue
        if {cloud[p] for p in a} & {cloud[p] for p in b}:
            left.add(i)
        else:
            sets.remove(b)
            a |= b
    return sorted(sorted(s) for s in sets if len(s) > 1), left


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11), st.sampled_from([0.5, 0.7, 0.9])), max_size=20))
def test_groups_are_those_of_the_definition(links):
    cloud = np.arange(12) % 4
    links = [link for link in links if cloud[link[0]] != cloud[link[1]]]
    first, second = (np.array([link[i] for link in links], dtype=np.int64) for i in (0, 1))
    confidence = np.array([link[2] for link in links], dtype=np.float64)
    found, left_out = groups(cloud, first, second, confidence)
    wanted, left = joined(cloud.tolist(), first.tolist(), second.tolist(), confidence.tolist())
    assert [np.flatnonzero(found == g).tolist() for g in range(found.max(initial=-1) + 1)] == wanted
    assert set(np.flatnonzero(left_out).tolist()) == left


def test_the_least_sure_link_of_a_contradiction_is_left_out():
    cloud = np.array([0, 1, 2, 2])  # 0 - 1 - 2 and 0 - 3: points 2 and 3 are of one cloud
    found, left_out = groups(cloud, np.array([0, 1, 0]), np.array([1, 2, 3]), np.array([0.9, 0.6, 0.8]))
    assert left_out.tolist() == [False, True, False]
    assert found.tolist() == [0, 0, -1, 0]
