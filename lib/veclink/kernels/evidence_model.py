"""The probability that a candidate pair is the same object, learnt without any truth.

Candidates are a mixture of right pairs and of what objects without a partner find. Decoys (kernels/decoys.py) sample
the latter alone. A logistic model tells the two apart; with right pairs hidden in the mixture it is fitted by
expectation and maximisation (Fellegi and Sunter 1969 for the mixture over comparison features; Ward et al. 2009,
"Presence-only data and the EM algorithm", for one labelled class):

    E: p_i = sigmoid(w x_i + b) for every candidate
    M: weighted logistic regression: candidates as right, weight p_i; decoys as wrong, together sum (1 - p_i)

Without decoys any p would be its own fixed point; they say where wrong pairs lie, the mixture how many there are. Where
few pairs are right, or right and wrong ones lie far apart, the mixture alone can be far off, so how many are right is
also known, give or take, from the decoys' frequency (`Level`). Where decoys or wrong pairs are few, a feature can speak
for a pair, or against it, by chance; its weight is held near what it is elsewhere (`Prior`).
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

    A perfect separation of a few decoys is chance; hundreds of them, and of wrong pairs, overrule the prior.
    """

    weights: Floats
    deviation: float


# In the order of FEATURES. Logistic regressions on the truth give these weights, give or take half, whatever the
# encoders and the overlap (`python -m bench.evidence_weights` in tests prints them). They are held nearer: what a few
# wrong pairs happen to have, and a few decoys happen not to have, would speak for them and all their kind.
PRIOR = Prior(np.array([0.8, 1.0, 0.8, 0.8, -0.3, 0.0]), 0.35)


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
class Level:
    """The sum of weight * probability over the candidates is `value`, give or take `deviation` (infinite: unknown).

    weight: (p,), for instance vote shares. A sum is never further off than `reach`.
    """

    weight: Floats
    value: float
    deviation: float

    @property
    def reach(self) -> float:
        """How far off a sum can be: two deviations."""
        return 2 * self.deviation

    def total(self, odds: Floats) -> float:
        """The sum, of (p,) log odds."""
        return float((self.weight * _sigmoid(odds)).sum())

    def excess(self, odds: Floats) -> float:
        """Standard deviations that the sum lies above the value."""
        return (self.total(odds) - self.value) / self.deviation

    def slope(self, odds: Floats, rows: Floats) -> Floats:
        """(f + 1,) change of `excess` with the weights of a regression on (p, f + 1) rows."""
        p = _sigmoid(odds)
        slope: Floats = rows.T @ (self.weight * p * (1 - p)) / self.deviation
        return slope


def fit(
    candidates: Floats, decoys: Floats, first_guess: Floats, prior: Prior = PRIOR, level: Level | None = None
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
        # Decoys that stand for many wrong pairs each are no more evidence than they are decoys.
        pull = Pull(believed, max(each, 1.0) / prior.deviation**2, level)
        weights = weighted_logistic(rows, labels, mass, weights, pull)
        odds = right @ weights
        shift = 0.0 if level is None else shift_into_reach(odds, level)
        update = _sigmoid(odds + shift)
        moved = np.abs(update - p).max()
        p = (p + update) / 2
        if moved < TOLERANCE:
            break
    weights[-1] += shift
    return Model(units, weights)


def shift_into_reach(odds: Floats, level: Level) -> float:
    """What to add to the log odds, (p,), so that their sum lies within the level's reach."""
    total = level.total(odds)
    if not abs(total - level.value) > level.reach:
        return 0.0
    goal = level.value + np.copysign(level.reach, total - level.value)
    low, high = -SHIFT_MAX, SHIFT_MAX
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if level.total(odds + middle) < goal:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@dataclass(frozen=True)
class Pull:
    """What a regression is drawn to: weights, by a penalty on half the squared distance from `towards`, (f + 1,), the
    intercept left out; and a level of its first rows.
    """

    towards: Floats
    penalty: float
    level: Level | None = None


def weighted_logistic(rows: Floats, labels: Floats, mass: Floats, start: Floats, pull: Pull) -> Floats:
    """Weights of a logistic regression by Newton's method; the last column of `rows` is the intercept.

    rows: (n, f + 1). labels, mass: (n,) 0 or 1, and what each row weighs. Where there is a level, half its squared
    excess counts too: a normal prior on a sum of probabilities.
    """
    weights, level = start.copy(), pull.level
    penalty = np.full(rows.shape[1], pull.penalty)
    penalty[-1] = 0.0
    levelled = rows[: len(level.weight)] if level else rows[:0]

    def loss(weights: Floats) -> float:
        odds = rows @ weights
        lost = mass @ (np.logaddexp(0, odds) - labels * odds) + penalty @ (weights - pull.towards) ** 2 / 2
        return float(lost) + (level.excess(levelled @ weights) ** 2 / 2 if level else 0.0)

    lost = loss(weights)
    for _ in range(NEWTON_STEPS):
        p = _sigmoid(rows @ weights)
        gradient = rows.T @ (mass * (p - labels)) + penalty * (weights - pull.towards)
        curvature = (rows * (mass * p * (1 - p))[:, None]).T @ rows + np.diag(penalty)
        if level:
            odds = levelled @ weights
            slope = level.slope(odds, levelled)
            gradient = gradient + level.excess(odds) * slope
            curvature = curvature + np.outer(slope, slope)
        move = np.linalg.solve(curvature + 1e-9 * mass.sum() * np.eye(len(weights)), gradient)
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
