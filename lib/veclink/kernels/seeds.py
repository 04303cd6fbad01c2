"""Do the seed pairs agree with each other? A permutation test on their distances, before any work is done."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veclink.kernels.hashing import cosine_distances

Matrix = NDArray[np.float32]

MOST_PAIRS = 100


@dataclass(frozen=True)
class Consistency:
    """Correlation of the seeds' pair distances on the two sides, and its chance level.

    correlation: Pearson correlation over all pairs of seeds. p_value: share of shuffled pairings that correlate at
    least as well (the observed one counted), at least 1 / (shuffles + 1).
    """

    correlation: float
    p_value: float


def consistency(source: Matrix, target: Matrix, random_seed: int, shuffles: int = 999) -> Consistency:
    """Mantel's test (1967, "The detection of disease clustering") of the seeds' distance matrices.

    source: (s, d_s), target: (s, d_t) float32 unit rows, paired by position, s at least 4. Of more than
    MOST_PAIRS pairs a random sample is tested: the cost is quadratic, and as many are plenty.
    """
    rng = np.random.default_rng([random_seed, len(source)])
    if len(source) > MOST_PAIRS:
        chosen = rng.permutation(len(source))[:MOST_PAIRS]
        source, target = source[chosen], target[chosen]
    a = cosine_distances(source, source).astype(np.float64)
    b = cosine_distances(target, target).astype(np.float64)
    upper = np.triu_indices(len(a), 1)
    observed = _correlation(a[upper], b[upper])
    shuffled = np.empty(shuffles)
    for i in range(shuffles):
        order = rng.permutation(len(a))
        shuffled[i] = _correlation(a[upper], b[np.ix_(order, order)][upper])
    return Consistency(observed, float((1 + (shuffled >= observed).sum()) / (shuffles + 1)))


def _correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / scale if scale > 0 else 0.0
