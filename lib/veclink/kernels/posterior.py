"""From votes to promoted links: posterior, threshold, one to one.

Source: vector-linking paper, section 4 ("Posterior-guided bootstrapping"); Otsu 1979, "A threshold selection method
from gray-level histograms".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]


def posterior_mean(votes: ArrayLike, opportunities: ArrayLike) -> Floats:
    """Mean of Beta(1 + votes, 1 + opportunities - votes): the chance that one more view would propose the pair."""
    return (1.0 + np.asarray(votes, dtype=np.float64)) / (2.0 + np.asarray(opportunities, dtype=np.float64))


def otsu_threshold(values: ArrayLike, counts: ArrayLike, bins: int) -> float:
    """Threshold in [0, 1] that best separates a histogram of `bins` equal bins in two; keep values at or above it.

    values: (p,) in [0, 1]; counts: (p,) how often each occurs. Equal separations go to the lower threshold. Where all
    values fall in one bin there is nothing to separate and the lower edge of that bin is returned: all are kept.
    """
    position = np.asarray(values, dtype=np.float64) * bins
    # 0.29 * 100 is 28.999...: without the nudge a value on an edge falls below the threshold that is this edge.
    index = np.clip(np.floor(position + 1e-9).astype(np.int64), 0, bins - 1)
    weight = np.bincount(index, weights=np.asarray(counts, dtype=np.float64), minlength=bins)
    occupied = np.flatnonzero(weight)
    if len(occupied) < 2:
        return float(occupied[0] / bins) if len(occupied) else 1.0
    center = (np.arange(bins) + 0.5) / bins
    below = np.cumsum(weight)[:-1]
    above = weight.sum() - below
    mean_sum = np.cumsum(weight * center)[:-1]
    total = float((weight * center).sum())
    between = np.full(bins - 1, -1.0)
    split = (below > 0) & (above > 0)
    gap = mean_sum[split] / below[split] - (total - mean_sum[split]) / above[split]
    between[split] = below[split] * above[split] * gap**2
    return float((int(between.argmax()) + 1) / bins)


def one_to_one(source: Rows, target: Rows, confidence: Floats) -> Rows:
    """Greedy one-to-one choice in decreasing confidence, ties by (source, target).

    source, target, confidence: (p,). Returns the positions of the chosen pairs, best first.
    Taking, again and again, all pairs that come first for both their rows gives the greedy answer, without a loop over
    pairs.
    """
    order = np.lexsort((target, source, -confidence))
    chosen = []
    while len(order):
        first_source = np.zeros(len(order), dtype=bool)
        first_target = np.zeros(len(order), dtype=bool)
        first_source[np.unique(source[order], return_index=True)[1]] = True
        first_target[np.unique(target[order], return_index=True)[1]] = True
        take = order[first_source & first_target]
        chosen.append(take)
        free = ~np.isin(source[order], source[take]) & ~np.isin(target[order], target[take])
        order = order[free]
    picked = np.concatenate(chosen) if chosen else np.empty(0, dtype=np.int64)
    return picked[np.lexsort((target[picked], source[picked], -confidence[picked]))]
