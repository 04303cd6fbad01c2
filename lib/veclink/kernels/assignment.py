"""Quadratic assignment: which node of one graph is which node of the other, by all pair similarities at once.

    maximise over permutations p:  sum_ij A_ij B_p(i)p(j) + sum_i L_i,p(i)

By exchanging two nodes at a time, always the best exchange, from many random starts (2-opt). For symmetric A and B the
gain of exchanging the partners of r and s is

    G_rs + G_sr - G_rr - G_ss + a_rs b_rs

with G = 2 A B_p + L_p, where B_p and L_p are B and L in the order of p, and a_rs = A_rr + A_ss - 2 A_rs, b_rs likewise
for B_p. So all gains of all starts are one batched product; thirty nodes and a hundred starts take some 0.1 s.

Letters: c nodes of a graph, t starts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# An exchange must gain more than this share of the largest possible term: rounding never makes the search go round.
GAIN_MIN = 1e-9


def quadratic_assignment(
    source: Floats, target: Floats, linear: Floats, starts: int, rng: np.random.Generator
) -> tuple[Ints, float]:
    """The best of `starts` local optima of the sum above.

    source, target: (c, c) symmetric. linear: (c, c), the reward of giving row i the partner j; zeros where there is
    none. Returns the partners (c,) and the sum they reach.
    """
    orders = rng.permuted(np.tile(np.arange(len(source)), (starts, 1)), axis=1)
    orders = _exchange_until_best(source, target, linear, orders)
    totals = assignment_scores(source, target, linear, orders)
    best = int(totals.argmax())
    return orders[best], float(totals[best])


def assignment_scores(source: Floats, target: Floats, linear: Floats, orders: Ints) -> Floats:
    """The sum above for each of t permutations (t, c): (t,)."""
    permuted = target[orders[:, :, None], orders[:, None, :]]
    nodes = np.arange(len(source))
    total: Floats = np.einsum("ij,tij->t", source, permuted) + linear[nodes, orders].sum(axis=1)
    return total


def _exchange_until_best(source: Floats, target: Floats, linear: Floats, orders: Ints) -> Ints:
    orders = orders.copy()
    spread = _squared_distances(source)
    least = GAIN_MIN * (np.abs(source).max() * np.abs(target).max() * len(source) + np.abs(linear).max())
    active = np.arange(len(orders))
    while len(active):
        gains = _gains(source, target, linear, orders[active], spread)
        flat = gains.reshape(len(active), -1)
        best = flat.argmax(axis=1)
        better = flat[np.arange(len(active)), best] > least
        active, best = active[better], best[better]
        r, s = np.divmod(best, len(source))
        orders[active, r], orders[active, s] = orders[active, s], orders[active, r]
    return orders


def _gains(source: Floats, target: Floats, linear: Floats, orders: Ints, spread: Floats) -> Floats:
    """(t, c, c) gain of every exchange in every permutation."""
    permuted = target[orders[:, :, None], orders[:, None, :]]
    mixed = 2 * (source @ permuted) + linear[:, orders].transpose(1, 0, 2)
    own = np.einsum("tii->ti", mixed)
    gains: Floats = mixed + mixed.transpose(0, 2, 1) - own[:, :, None] - own[:, None, :]
    gains += spread * _squared_distances(permuted)
    return gains


def _squared_distances(gram: Floats) -> Floats:
    """g_rr + g_ss - 2 g_rs for (..., c, c) Gram matrices."""
    own = np.einsum("...ii->...i", gram)
    squared: Floats = own[..., :, None] + own[..., None, :] - 2 * gram
    return squared
