"""The evidence model on mixtures whose truth is known by construction."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from veclink.kernels.evidence_model import (
    FEATURES,
    PRIOR,
    Level,
    Prior,
    Pull,
    shift_into_reach,
    vote_share,
    weighted_logistic,
)
from veclink.kernels.evidence_model import fit as fit_to

# Nothing is known of these features before.
MODEST = Prior(np.zeros(3), 2.0)


def fit(candidates, decoys, guess, level=None):
    prior = Prior(np.zeros(candidates.shape[1]), MODEST.deviation)
    return fit_to(candidates, decoys, guess, prior, level)


def mixture(right, wrong, decoys, apart=2.5, seed=0):
    """Candidates of two normal heaps, and decoys from the heap of the wrong ones; the posterior in closed form."""
    rng = np.random.default_rng(seed)
    shift = np.array([apart, apart / 2, 0.0])
    good, bad = rng.standard_normal((right, 3)) + shift, rng.standard_normal((wrong, 3))
    candidates = np.concatenate([good, bad])
    odds = candidates @ shift - shift @ shift / 2 + np.log(right / wrong)
    labels = np.r_[np.ones(right), np.zeros(wrong)]
    return candidates, rng.standard_normal((decoys, 3)), labels, 1 / (1 + np.exp(-odds))


@pytest.mark.parametrize(("right", "wrong"), [(3_000, 1_000), (2_000, 2_000), (800, 3_200)])
def test_probabilities_are_those_of_bayes_whatever_the_share_of_right_pairs(right, wrong):
    candidates, decoys, _, expected = mixture(right, wrong, 1_500)
    found = fit(candidates, decoys, np.full(len(candidates), 0.5)).probability(candidates)
    assert np.abs(found - expected).mean() < 0.03
    assert abs(found.sum() - right) / right < 0.08


def test_few_decoys_are_enough_for_a_rough_answer():
    candidates, decoys, labels, _ = mixture(1_500, 800, 60)
    found = fit(candidates, decoys, np.full(len(candidates), 0.5)).probability(candidates)
    assert abs(found[found > 0.5].mean() - labels[found > 0.5].mean()) < 0.06


def test_a_feature_that_never_varies_does_no_harm():
    candidates, decoys, _, _ = mixture(500, 500, 300)
    flat = [np.concatenate([x, np.ones((len(x), 1))], axis=1) for x in (candidates, decoys)]
    with_it = fit(flat[0], flat[1], np.full(1_000, 0.5)).probability(flat[0])
    without = fit(candidates, decoys, np.full(1_000, 0.5)).probability(candidates)
    np.testing.assert_allclose(with_it, without, atol=0.02)


def test_weighted_logistic_is_that_of_scikit_learn():
    rng = np.random.default_rng(1)
    rows = np.concatenate([rng.standard_normal((300, 2)), np.ones((300, 1))], axis=1)
    labels = (rows[:, 0] + rng.standard_normal(300) > 0).astype(float)
    mass = rng.random(300)
    found = weighted_logistic(rows, labels, mass, np.zeros(3), Pull(np.zeros(3), 0.5))
    expected = LogisticRegression(C=1 / 0.5, tol=1e-8).fit(rows[:, :2], labels, sample_weight=mass)
    np.testing.assert_allclose(found[:2], expected.coef_[0], atol=1e-3)
    assert found[2] == pytest.approx(expected.intercept_[0], abs=1e-3)


def test_a_start_that_is_far_off_does_no_harm():
    rng = np.random.default_rng(2)
    rows = np.concatenate([rng.standard_normal((400, 2)), np.ones((400, 1))], axis=1)
    labels, mass = np.r_[np.ones(380), np.zeros(20)], np.r_[np.full(380, 0.02), np.full(20, 15.0)]
    near = weighted_logistic(rows, labels, mass, np.zeros(3), Pull(np.zeros(3), 0.5))
    far = weighted_logistic(rows, labels, mass, np.array([5.0, -5.0, 8.0]), Pull(np.zeros(3), 0.5))
    np.testing.assert_allclose(far, near, atol=1e-5)


def test_heaps_far_apart_stay_finite():
    candidates, decoys, labels, _ = mixture(200, 200, 100, apart=12.0)
    found = fit(candidates, decoys, np.full(400, 0.5)).probability(candidates)
    assert np.isfinite(found).all()
    assert ((found > 0.5) == labels).mean() > 0.99


def test_vote_share_rises_with_the_votes_and_is_finite_at_both_ends():
    shares = vote_share(np.arange(5.0), np.full(5, 4.0))
    assert np.isfinite(shares).all()
    assert (np.diff(shares) > 0).all()
    assert shares[2] == 0
    assert FEATURES[0] == "vote_share"


def test_a_level_pulls_the_sum_back_and_an_unknown_one_leaves_it_alone():
    candidates, decoys, _, _ = mixture(100, 1_900, 400, apart=1.0)
    guess, weight = np.full(2_000, 0.9), np.full(2_000, 0.5)
    free = fit(candidates, decoys, guess).probability(candidates)
    known = fit(candidates, decoys, guess, Level(weight, 50, 5)).probability(candidates)
    unknown = fit(candidates, decoys, guess, Level(weight, 50, np.inf)).probability(candidates)
    assert (weight * free).sum() > 100  # the mixture alone takes many for right
    assert 38 < (weight * known).sum() < 62
    np.testing.assert_allclose(unknown, free)


def test_where_right_and_wrong_lie_far_apart_the_level_decides_what_the_mixture_cannot():
    """By what wrong pairs have and decoys, by chance, have not, the mixture talks itself into believing them."""
    candidates, decoys, labels, _ = mixture(230, 60, 220, apart=9.0)
    candidates[labels == 0, 2] += 0.8
    guess = np.where(labels == 1, 0.95, 0.6)
    found = {d: fit(candidates, decoys, guess, Level(np.ones(290), 230, d)).probability(candidates) for d in (8, 1e6)}
    assert found[1e6][labels == 0].mean() > 0.9
    assert found[8][labels == 0].mean() < 0.4
    assert found[8][labels == 1].mean() > 0.98


@pytest.mark.parametrize("goal", [0.5, 3.0, 9.5])
def test_the_shift_meets_the_nearer_end_of_the_reach(goal):
    odds = np.linspace(-3, 5, 10)
    shift = shift_into_reach(odds, Level(np.ones(10), goal, 0.0))
    assert (1 / (1 + np.exp(-odds - shift))).sum() == pytest.approx(goal)
    assert shift_into_reach(odds, Level(np.ones(10), goal, 10.0)) == 0


def test_a_levelled_regression_stands_where_its_loss_is_least():
    rng = np.random.default_rng(4)
    rows = np.concatenate([rng.standard_normal((200, 2)), np.ones((200, 1))], axis=1)
    labels, mass = (rows[:, 0] > 0.3).astype(float), rng.random(200)
    level = Level(rng.random(80), 10.0, 3.0)
    found = weighted_logistic(rows, labels, mass, np.zeros(3), Pull(np.zeros(3), 0.5, level))

    def loss(w):
        odds = rows @ w
        lost = mass @ (np.logaddexp(0, odds) - labels * odds) + 0.25 * w[:2] @ w[:2]
        return lost + ((level.weight / (1 + np.exp(-odds[:80]))).sum() - 10.0) ** 2 / 18

    best = minimize(loss, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-10, "maxiter": 5_000})
    np.testing.assert_allclose(found, best.x, atol=1e-4)


def test_with_few_decoys_the_prior_keeps_the_weights_and_with_many_it_does_not():
    prior = Prior(np.array([1.0, 1.0, 1.0]), 0.5)
    weights = {}
    for count in (8, 4_000):
        candidates, decoys, _, _ = mixture(2_000, 2_000, count, apart=2.5)
        weights[count] = fit_to(candidates, decoys, np.full(4_000, 0.5), prior).weights[:3]
    # The third feature says nothing; the second is worth half of the first.
    assert np.abs(weights[8] - prior.weights).max() < 0.7
    assert abs(weights[4_000][2]) < 0.2
    assert weights[4_000][0] > 1.5 * weights[4_000][1]


def test_a_prior_that_is_sure_is_not_moved():
    rng = np.random.default_rng(3)
    rows = np.concatenate([rng.standard_normal((300, 2)), np.ones((300, 1))], axis=1)
    labels, mass = (rng.random(300) < 0.5).astype(float), rng.random(300)
    towards = np.array([0.7, -0.2, 0.0])
    found = weighted_logistic(rows, labels, mass, np.zeros(3), Pull(towards, 1e9))
    np.testing.assert_allclose(found[:2], towards[:2], atol=1e-5)


def test_the_prior_has_a_weight_for_every_feature():
    assert len(PRIOR.weights) == len(FEATURES)
