"""Mutual best partners under CSLS, exact and without an n x m array, from two k-nearest passes.

    csls(u, v) = 2 s(u, v) - r_T(u) - r_S(v)

r_T(u) is the mean similarity of u to its k nearest targets, r_S(v) that of v to its k nearest sources (Conneau et al.
2018, "Word translation without parallel data", section 2.3). Two exact k-nearest passes give both densities, and also
the best partners: for a pair (u, v) in neither list, s(u, v) is at most t = the k-th similarity of u and at most the
k-th similarity of v, so 2 s(u, v) - r_S(v) cannot exceed

    ceiling(t) = max over v of 2 min(t, kth(v)) - r_S(v)

which one sort answers for all rows. A row whose best listed score reaches its ceiling is certified; the few that do
not are scored against the whole other side. The answer is the exact one, at the cost of the two passes.

Letters: n sources, m targets, k list length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]
Rows = NDArray[np.int64]
Nearest = Callable[[Matrix, Matrix, int], tuple[Matrix, Rows]]

# Two BLAS calls may round the same inner product differently; a lead smaller than this proves nothing.
ROUNDING = 1e-6
# Rows scored against a whole side at once; bounds the temporary array of the uncertified rows.
EXACT_BLOCK_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Matches:
    """Mutual best partners, in the order of `source`.

    source, target: (p,) int64 row numbers. score: (p,) float32, csls. source_lead, target_lead: (p,) float32, csls
    lead of the pair over the best other partner of its source, of its target. source_density, target_density: (p,)
    float32, mean similarity of either row to its k nearest on the other side. uncertified: rows that needed the exact
    fallback.
    """

    source: Rows
    target: Rows
    score: Matrix
    source_lead: Matrix
    target_lead: Matrix
    source_density: Matrix
    target_density: Matrix
    uncertified: int

    @property
    def margin(self) -> Matrix:
        """Lead over the best other partner of either row."""
        return np.minimum(self.source_lead, self.target_lead)


def list_length(wanted: int, n: int, m: int) -> int:
    """Length of the nearest lists for clouds of n and m points: as wanted, but at most a tenth of the smaller cloud.

    The density of a neighbourhood that is most of the cloud says where the cloud's middle is: with k = n, even
    identical clouds lose pairs.
    """
    return max(1, min(wanted, min(n, m) // 10))


def mutual_matches(source: Matrix, target: Matrix, k: int, nearest: Nearest) -> Matches:
    """Pairs that are each other's csls-best partner; equal scores go to the lower row number.

    source: (n, d), target: (m, d) float32 unit rows. k is cut to min(k, n, m).
    nearest(queries, base, k) returns similarities (q, k), best first, and row numbers (q, k).
    """
    k = min(k, len(source), len(target))
    forward = nearest(source, target, k)
    backward = nearest(target, source, k)
    targets_dense, sources_dense = forward[0].mean(axis=1), backward[0].mean(axis=1)
    by_source = _Side(source, target, forward, backward, sources_dense)
    by_target = _Side(target, source, backward, forward, targets_dense)
    u = np.flatnonzero(by_target.best[by_source.best] == np.arange(len(source)))
    v = by_source.best[u]
    by_source.settle_runner_up(u)
    by_target.settle_runner_up(v)
    return Matches(
        source=u,
        target=v,
        score=by_source.best_score[u] - targets_dense[u],
        source_lead=np.maximum(by_source.lead(u), 0),
        target_lead=np.maximum(by_target.lead(v), 0),
        source_density=targets_dense[u],
        target_density=sources_dense[v],
        uncertified=by_source.uncertified + by_target.uncertified,
    )


class _Side:
    """Best and second-best partner of every row of one side.

    Scores here leave out the row's own density, which is the same for all its partners.
    """

    def __init__(
        self,
        queries: Matrix,
        base: Matrix,
        own: tuple[Matrix, Rows],
        other: tuple[Matrix, Rows],
        density: Matrix,
    ) -> None:
        self._queries, self._base, self._density = queries, base, density
        n = len(queries)
        # Candidates: pairs in the row's own list or in the partner's list.
        u = np.concatenate([np.repeat(np.arange(n), own[0].shape[1]), other[1].ravel()])
        v = np.concatenate([own[1].ravel(), np.repeat(np.arange(len(base)), other[0].shape[1])])
        score = 2 * np.concatenate([own[0].ravel(), other[0].ravel()]) - density[v]
        self.best_score = _max_by(u, score, n)
        top = score == self.best_score[u]
        self.best = np.full(n, len(base), dtype=np.int64)
        np.minimum.at(self.best, u[top], v[top])
        rest = v != self.best[u]
        self.second_score = _max_by(u[rest], score[rest], n)
        self._ceiling = ceiling(own[0][:, -1], other[0][:, -1], density) + ROUNDING
        doubtful = np.flatnonzero(self.best_score < self._ceiling)
        self._settled = np.zeros(n, dtype=bool)
        self._score_exactly(doubtful, best_known=False)
        self.uncertified = len(doubtful)

    def settle_runner_up(self, rows: Rows) -> None:
        """Make the second-best scores of these rows exact too."""
        doubtful = (self.second_score[rows] < self._ceiling[rows]) & ~self._settled[rows]
        self._score_exactly(rows[doubtful], best_known=True)

    def lead(self, rows: Rows) -> Matrix:
        """Lead of the best partner over the second best; where there is no other partner, over a similarity of 0."""
        second = self.second_score[rows]
        return self.best_score[rows] - np.where(np.isfinite(second), second, 0)

    def _score_exactly(self, rows: Rows, *, best_known: bool) -> None:
        block = max(1, EXACT_BLOCK_BYTES // (4 * len(self._base)))
        for start in range(0, len(rows), block):
            part = rows[start : start + block]
            scores = 2 * (self._queries[part] @ self._base.T) - self._density
            at = np.arange(len(part))
            if not best_known:
                self.best[part] = scores.argmax(axis=1)
                self.best_score[part] = scores[at, self.best[part]]
            scores[at, self.best[part]] = -np.inf
            self.second_score[part] = scores.max(axis=1)
        self._settled[rows] = True


def ceiling(kth_own: Matrix, kth_other: Matrix, density: Matrix) -> Matrix:
    """Upper bound of `2 s(u, v) - density(v)` over all v for pairs that are in neither nearest list.

    kth_own: (n,) k-th similarity of each u. kth_other, density: (m,) k-th similarity and mean similarity of each v.
    Returns (n,): max over v of `2 min(kth_own[u], kth_other[v]) - density[v]`, in O((n + m) log m).
    """
    order = np.argsort(kth_other, kind="stable")
    kth, dense = kth_other[order], density[order]
    below = np.maximum.accumulate(2 * kth - dense)  # partners whose own k-th similarity is the smaller one
    above = np.minimum.accumulate(dense[::-1])[::-1]  # partners for which kth_own is
    cut = np.searchsorted(kth, kth_own, side="right")
    low = np.where(cut > 0, below[np.maximum(cut - 1, 0)], -np.inf)
    high = np.where(cut < len(kth), 2 * kth_own - above[np.minimum(cut, len(kth) - 1)], -np.inf)
    return np.maximum(low, high)


def _max_by(keys: Rows, values: Matrix, n: int) -> Matrix:
    out = np.full(n, -np.inf, dtype=np.float32)
    np.maximum.at(out, keys, values)
    return out
