"""Affine maps against independent solvers and definitions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import eigh
from sklearn.linear_model import Ridge

from clouds import centred, two_warps
from veclink.kernels.affine import cca_maps, ridge_map, unit_rows


@pytest.fixture(scope="module")
def anchors():
    a, b = two_warps(200, (24, 30), 0.05, np.random.default_rng(0))
    return centred(a), centred(b)


def test_a_row_at_the_mean_stays_zero_and_finite():
    assert np.array_equal(unit_rows(np.zeros((2, 3), np.float32)), np.zeros((2, 3)))


@pytest.mark.parametrize("count", [10, 200])  # fewer anchors than dimensions: the dual form
def test_ridge_is_that_of_scikit_learn(anchors, count):
    a, b = (x[:count] for x in anchors)
    expected = Ridge(alpha=0.5, fit_intercept=False, solver="svd").fit(a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_allclose(ridge_map(a, b, 0.5), expected.coef_.T, atol=1e-5)


@pytest.mark.parametrize("count", [10, 200])
def test_cca_solves_the_generalised_eigenproblem(anchors, count):
    """Its directions u satisfy C_st C_tt^-1 C_ts u = c^2 C_ss u, scipy says with which c."""
    x, y = (a[:count].astype(np.float64) for a in anchors)
    ss, tt, st = (m / count for m in (x.T @ x, y.T @ y, x.T @ y))
    ss += np.trace(ss) / len(ss) * np.eye(len(ss))
    tt += np.trace(tt) / len(tt) * np.eye(len(tt))
    squares = eigh(st @ np.linalg.solve(tt, st.T), ss, eigvals_only=True)[::-1]
    source, target = cca_maps(*(a[:count] for a in anchors), ridge=1.0)
    assert source.shape == (24, 24)
    assert target.shape == (30, 24)
    c = np.sqrt(np.maximum(squares, 0))
    # Columns are C^-1/2-orthonormal directions times c, so their products are c^2, and across c^3.
    np.testing.assert_allclose(source.T @ ss @ source, np.diag(c**2), atol=2e-4)
    np.testing.assert_allclose(target.T @ tt @ target, np.diag(c**2), atol=2e-4)
    np.testing.assert_allclose(source.T @ st @ target, np.diag(c**3), atol=2e-4)


def test_cca_keeps_the_strongest_directions(anchors):
    wide, narrow = cca_maps(*anchors), cca_maps(*anchors, width=5)
    for whole, part in zip(wide, narrow, strict=True):
        np.testing.assert_allclose(part, whole[:, :5], atol=1e-6)


def test_rotating_a_side_rotates_its_map(anchors):
    """Inner products in the common space do not know the axes of a cloud."""
    a, b = anchors
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((24, 24)))[0].astype(np.float32)
    before, after = cca_maps(a, b), cca_maps(a @ turn, b)
    np.testing.assert_allclose((a @ before[0]) @ (b @ before[1]).T, (a @ turn @ after[0]) @ (b @ after[1]).T, atol=1e-4)
