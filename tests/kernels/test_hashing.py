"""Distance-to-anchor hashes against one-point-at-a-time arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ortho_group

from clouds import problem, unit
from veclink.backends import faiss_cpu
from veclink.kernels.hashing import bandwidth, cosine_distances, hash_cloud, kernel_hash
from veclink.kernels.propose import propose


def slow_hash(points, anchors, sigma_from):
    d = [[max(0.0, 1 - float(np.dot(p, a))) for a in anchors.astype(float)] for p in points.astype(float)]
    among = [[max(0.0, 1 - float(np.dot(p, a))) for a in anchors.astype(float)] for p in anchors.astype(float)]
    real = sorted(x for row in (d if sigma_from == "cloud" else among) for x in row if x > 1e-6)
    middle = len(real) // 2
    sigma = real[middle] if len(real) % 2 else (real[middle - 1] + real[middle]) / 2
    rows = [[math.exp(-x / sigma) for x in row] for row in d]
    return np.array([[x / math.sqrt(sum(y * y for y in row)) for x in row] for row in rows])


@pytest.mark.parametrize("sigma_from", ["cloud", "anchors"])
def test_hash_is_that_of_the_formula(sigma_from):
    p = problem(80, seeds=7)
    anchors = p.source[p.seeds[:, 0]]
    found = hash_cloud(p.source, anchors, sigma_from)
    np.testing.assert_allclose(found, slow_hash(p.source, anchors, sigma_from), atol=2e-5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


def test_a_row_against_itself_is_never_below_zero():
    rows = unit(np.random.default_rng(0).standard_normal((500, 300)))
    distances = cosine_distances(rows, rows)
    assert distances.min() == 0
    assert np.isfinite(np.sqrt(distances)).all()


def test_copies_of_an_anchor_do_not_make_the_bandwidth_noise():
    rng = np.random.default_rng(1)
    anchor = unit(rng.standard_normal((1, 384)))
    cloud = np.concatenate([np.repeat(anchor, 900, axis=0), unit(rng.standard_normal((100, 384)))])
    assert bandwidth(cosine_distances(cloud, anchor)) > 0.5


def test_bandwidth_of_nothing_but_copies_is_one():
    assert bandwidth(np.zeros((3, 2), dtype=np.float32)) == 1.0


def test_a_row_far_from_every_anchor_stays_finite():
    assert np.isfinite(kernel_hash(np.full((1, 3), 2.0, dtype=np.float32), 1e-3)).all()


def test_rotating_either_cloud_changes_no_proposal():
    p = problem(400)
    turn = ortho_group.rvs(p.source.shape[1], random_state=0).astype(np.float32)
    anchors = p.source[p.seeds[:, 0]], p.target[p.seeds[:, 1]]
    plain = propose((p.source, p.target), anchors, 20, "cloud", faiss_cpu.nearest)
    turned = propose((p.source @ turn, p.target), (anchors[0] @ turn, anchors[1]), 20, "cloud", faiss_cpu.nearest)
    np.testing.assert_array_equal(plain.source, turned.source)
    np.testing.assert_array_equal(plain.target, turned.target)


def test_shuffling_rows_changes_no_proposal():
    p = problem(400)
    anchors = p.source[p.seeds[:, 0]], p.target[p.seeds[:, 1]]
    order = np.random.default_rng(2).permutation(len(p.target))
    plain = propose((p.source, p.target), anchors, 20, "cloud", faiss_cpu.nearest)
    mixed = propose((p.source, p.target[order]), anchors, 20, "cloud", faiss_cpu.nearest)
    np.testing.assert_array_equal(plain.target, order[mixed.target])
