"""Every kind of view brings shared objects together in one space."""

from __future__ import annotations

import numpy as np
import pytest

from clouds import centred, problem
from veclink.backends import faiss_cpu
from veclink.kernels.affine import ridge_map, unit_rows
from veclink.kernels.csls import mutual_matches
from veclink.kernels.spaces import KINDS, Comparison, common_space

P = problem(600, seeds=60, draw=1)
ANCHORS = P.source[P.seeds[:, 0]], P.target[P.seeds[:, 1]]


def right(matches):
    return np.mean([P.truth.get(a) == b for a, b in zip(matches.source.tolist(), matches.target.tolist(), strict=True)])


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "unpaired"])  # that one has tests of its own
def test_shared_objects_are_each_others_best_partner(kind):
    spaces = common_space((P.source, P.target), ANCHORS, Comparison(kind), faiss_cpu.nearest)
    assert spaces[0].shape[1] == spaces[1].shape[1]
    for space in spaces:
        np.testing.assert_allclose(np.linalg.norm(space, axis=1), 1, atol=1e-5)
    assert right(mutual_matches(*spaces, 20, faiss_cpu.nearest)) > 0.6  # chance is 1 in 450


def test_ridge_is_the_map_applied_to_centred_rows():
    means = [c.mean(axis=0) for c in (P.source, P.target)]
    anchors = [unit_rows(a - m) for a, m in zip(ANCHORS, means, strict=True)]
    source, target = common_space((P.source, P.target), ANCHORS, Comparison("ridge"), faiss_cpu.nearest)
    np.testing.assert_allclose(source, unit_rows((P.source - means[0]) @ ridge_map(*anchors, 0.5)), atol=1e-4)
    np.testing.assert_allclose(target, centred(P.target), atol=1e-5)


def test_the_same_key_gives_the_same_soft_space_and_another_key_another():
    def space(key):
        return common_space((P.source, P.target), ANCHORS, Comparison("soft", key=key), faiss_cpu.nearest)[0]

    assert np.array_equal(space((0, 1)), space((0, 1)))
    assert not np.array_equal(space((0, 1)), space((0, 2)))
