"""The probability that a candidate pair is the same object, learnt without any truth.

Candidates are a mixture of right pairs and of what objects without a partner find. Decoys (kernels/decoys.py) sample
the latter alone. A logistic model tells the two apart; with right pairs hidden in the mixture it is fitted by
expectation and maximisation (Fellegi and Sunter 1969 for the mixture over comparison features; Ward et al. 2009,
"Presence-only data and the EM algorithm", for one labelled class):

    E: p_i = sigmoid(w x_i + b) for every candidate
    M: weighted logistic regression: candidates as right, weight p_i; decoys as wrong, together sum (1 - p_i)

Without decoys any p would be its own fixed point; they say where wrong pairs lie, the mixture how many there are. Where
few pairs are right the mixture alone can be far off, so how many there are is also known to lie between bounds (the
decoys' frequency tells); the odds of all candidates are shifted to the nearer bound when they leave it. Where decoys
are few, a feature can speak for a pair, or against it, by chance; its weight is held near what it is elsewhere
(`Prior`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FEATURES = ("vote_share", "score", "source_lead", "target_lead", "source_density", "target_density")
# Standard deviations beyond which a feature says no more.
CLIP = 4.0
TOLERANCE = 1e-3
STEPS_MAX = 200
NEWTON_STEPS = 25
# Log odds are never shifted by more; halved so often, the shift is exact to 1e-9.
SHIFT_MAX = 40.0
HALVINGS = 36


@dataclass(frozen=True)
class Prior:
    """weights: (f,) of standardised features that are believed before any decoy is seen, each give or take `deviation`.

    A perfect separation of a few decoys is chance; hundreds of them overrule the prior.
    """

    weights: Floats
    deviation: float


# In the order of FEATURES. Logistic regressions on the truth give these weights, give or take half, whatever the
# encoders and the overlap (`python -m bench.evidence_weights` in tests prints them).
PRIOR = Prior(np.array([0.8, 1.0, 0.8, 0.8, -0.3, 0.0]), 0.5)


@dataclass(frozen=True)
class Units:
    """What features are measured in: (f,) medians and standard deviations of the candidates."""

    center: Floats
    scale: Floats

    @classmethod
    def of(cls, candidates: Floats) -> Units:
        """Those of (p, f) features. A feature that never varies is left as it is."""
        spread = candidates.std(axis=0)
        return cls(np.median(candidates, axis=0), np.where(spread > 0, spread, 1.0))

    def design(self, features: Floats) -> Floats:
        """(p, f + 1) rows of a regression: the features in these units, clipped, and a 1 for the intercept."""
        standard = np.clip((features - self.center) / self.scale, -CLIP, CLIP)
        return np.concatenate([standard, np.ones((len(features), 1))], axis=1)


@dataclass(frozen=True)
class Model:
    """weights: (f + 1,), the intercept last."""

    units: Units
    weights: Floats

    def probability(self, features: Floats) -> Floats:
        """(p,) in [0, 1] of (p, f) features."""
        return _sigmoid(self.units.design(features) @ self.weights)


def vote_share(votes: Floats, opportunities: Floats) -> Floats:
    """Log odds of a vote, half a vote added on either side."""
    return np.log((votes + 0.5) / (opportunities - votes + 0.5))


@dataclass(frozen=True)
class Bounds:
    """low <= sum of weight * probability <= high over the candidates; weight: (p,), for instance vote shares."""

    weight: Floats
    low: float
    high: float


def fit(
    candidates: Floats, decoys: Floats, first_guess: Floats, prior: Prior = PRIOR, bounds: Bounds | None = None
) -> Model:
    """Fit the model on (p, f) features of the candidates and (q, f) of the decoys, p and q at least 1.

    first_guess: (p,) probabilities to begin with, for instance the posterior means of the votes.
    """
    units = Units.of(candidates)
    right, wrong = units.design(candidates), units.design(decoys)
    rows = np.concatenate([right, wrong])
    labels = np.concatenate([np.ones(len(right)), np.zeros(len(wrong))])
    believed = np.append(prior.weights, 0.0)
    p, weights, shift = first_guess.astype(np.float64), believed, 0.0
    for _ in range(STEPS_MAX):
        each = (1 - p).sum() / len(wrong)
        mass = np.concatenate([p, np.full(len(wrong), each)])
        weights = weighted_logistic(rows, labels, mass, weights, each / prior.deviation**2, believed)
        odds = right @ weights
        shift = 0.0 if bounds is None else shift_between(odds, bounds)
        update = _sigmoid(odds + shift)
        moved = np.abs(update - p).max()
        p = (p + update) / 2
        if moved < TOLERANCE:
            break
    weights[-1] += shift
    return Model(units, weights)


def shift_between(odds: Floats, bounds: Bounds) -> float:
    """What to add to the log odds, (p,), so that the weighted sum of their probabilities lies between the bounds."""
    total = float((bounds.weight * _sigmoid(odds)).sum())
    if bounds.low <= total <= bounds.high:
        return 0.0
    goal = bounds.low if total < bounds.low else bounds.high
    low, high = -SHIFT_MAX, SHIFT_MAX
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if float((bounds.weight * _sigmoid(odds + middle)).sum()) < goal:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def weighted_logistic(
    rows: Floats, labels: Floats, mass: Floats, start: Floats, penalty: float, towards: Floats
) -> Floats:
    """Weights of a logistic regression by Newton's method; the last column of `rows` is the intercept.

    rows: (n, f + 1). labels, mass: (n,) 0 or 1, and what each row weighs. penalty: on half the squared distance from
    `towards`, (f + 1,), the intercept left out.
    """
    weights = start.copy()
    pull = np.full(rows.shape[1], penalty)
    pull[-1] = 0.0

    def loss(weights: Floats) -> float:
        odds = rows @ weights
        return float(mass @ (np.logaddexp(0, odds) - labels * odds) + pull @ (weights - towards) ** 2 / 2)

    lost = loss(weights)
    for _ in range(NEWTON_STEPS):
        p = _sigmoid(rows @ weights)
        gradient = rows.T @ (mass * (p - labels)) + pull * (weights - towards)
        curvature = (rows * (mass * p * (1 - p))[:, None]).T @ rows + np.diag(pull)
        move = np.linalg.solve(curvature + 1e-9 * mass.sum() * np.eye(len(pull)), gradient)
        # From a start that is far off a whole step can overshoot for good: take the half until it helps.
        for _ in range(HALVINGS):
            now = loss(weights - move)
            if now <= lost:
                break
            move = move / 2
        else:
            break
        weights, lost = weights - move, now
        if np.abs(move).max() < 1e-8:
            break
    return weights


def _sigmoid(x: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-np.clip(x, -500, 500)))
