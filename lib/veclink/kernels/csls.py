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

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Protocol

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

    def take(self, chosen: NDArray[np.bool_]) -> Matches:
        """Some of the pairs, by (p,) flags."""
        kept = {f.name: getattr(self, f.name)[chosen] for f in fields(self) if f.name != "uncertified"}
        return Matches(**kept, uncertified=self.uncertified)

    @property
    def margin(self) -> Matrix:
        """Lead over the best other partner of either row."""
        return np.minimum(self.source_lead, self.target_lead)


class Compared(Protocol):
    """Two sides compared under one view, all of them or the rows around a place."""

    def matches(self) -> Matches:
        """All mutual best partners."""

    def bereft(self, pairs: Rows, side: int) -> Matches:
        """What one row of each pair would be matched with if the other were not there (see `Csls.bereft`)."""


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
    return Csls(source, target, k, nearest).matches()


class Csls:
    """Two sides compared once; what is asked of them later costs little."""

    def __init__(self, source: Matrix, target: Matrix, k: int, nearest: Nearest) -> None:
        """Run the two passes; arguments as for `mutual_matches`."""
        self._k = min(k, len(source), len(target))
        # One more than counts: it moves up where a row loses its partner.
        length = min(k + 1, len(source), len(target))
        forward, backward = nearest(source, target, length), nearest(target, source, length)
        crowd = [lists[0][:, : self._k].mean(axis=1) for lists in (forward, backward)]
        self._sides = (
            _Side(source, target, forward, backward, crowd[1]),
            _Side(target, source, backward, forward, crowd[0]),
        )

    def matches(self) -> Matches:
        """All mutual best partners."""
        by_source, by_target = self._sides
        u = np.flatnonzero(by_target.best[by_source.best] == np.arange(len(by_source.best)))
        v = by_source.best[u]
        by_source.settle_runner_up(u)
        by_target.settle_runner_up(v)
        return Matches(
            source=u,
            target=v,
            score=by_source.best_score[u] - by_target.density[u],
            source_lead=np.maximum(by_source.lead(u), 0),
            target_lead=np.maximum(by_target.lead(v), 0),
            source_density=by_target.density[u],
            target_density=by_source.density[v],
            uncertified=by_source.uncertified + by_target.uncertified,
        )

    def bereft(self, pairs: Rows, side: int) -> Matches:
        """What rows of one side would be matched with if their partner were not there; each pair is taken alone.

        pairs: (p, 2) of (source, target), every row at most once. side: 0: sources lose their target, 1: the other
        way. The row's own density is taken without the partner; those of all others are left as they are.
        """
        own, other = self._sides[side], self._sides[1 - side]
        x, y = pairs[:, side], pairs[:, 1 - side]
        z, best, second = own.without(x, y)
        found = z < len(own.density)
        x, y, z, best, second = x[found], y[found], z[found], best[found], second[found]
        density = own.density_without(x, y, other.density[x], self._k)
        score = best + own.density[z] - density  # as the partner sees it: its own density left out
        other.settle_runner_up(z)
        rival = np.where(other.best[z] == x, other.second_score[z], other.best_score[z])
        won = score > rival
        x, z, best, density = x[won], z[won], best[won], density[won]
        own_lead = best - np.where(np.isfinite(second[won]), second[won], 0)
        other_lead = score[won] - np.where(np.isfinite(rival[won]), rival[won], 0)
        mine, theirs = (x, own_lead, density), (z, other_lead, own.density[z])
        (u, u_lead, u_dense), (v, v_lead, v_dense) = (mine, theirs) if side == 0 else (theirs, mine)
        return Matches(u, v, best - density, u_lead, v_lead, u_dense, v_dense, 0)


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
        self._queries, self._base, self.density = queries, base, density
        self._own, self._other = own, other
        n = len(queries)
        u, v, score = self._candidates()
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

    def _candidates(self, wanted: NDArray[np.bool_] | None = None) -> tuple[Rows, Rows, Matrix]:
        """Pairs in the row's own list or in the partner's list; of the wanted rows, (n,) flags, or of all."""
        k_own, k_other = self._own[0].shape[1], self._other[0].shape[1]
        u = np.concatenate([np.repeat(np.arange(len(self._queries)), k_own), self._other[1].ravel()])
        v = np.concatenate([self._own[1].ravel(), np.repeat(np.arange(len(self._base)), k_other)])
        similarity = np.concatenate([self._own[0].ravel(), self._other[0].ravel()])
        if wanted is not None:
            kept = wanted[u]
            u, v, similarity = u[kept], v[kept], similarity[kept]
        return u, v, 2 * similarity - self.density[v]

    def without(self, rows: Rows, partners: Rows) -> tuple[Rows, Matrix, Matrix]:
        """Best partner, its score and the second-best score of rows that may not have a certain partner.

        The partner is len(base) where there is no other.
        """
        n, out = len(self._queries), np.full(len(self._queries), -1, dtype=np.int64)
        out[rows] = partners
        u, v, score = self._candidates(out >= 0)
        kept = v != out[u]
        u, v, score = u[kept], v[kept], score[kept]
        best_score, best = _max_by(u, score, n), np.full(n, len(self._base), dtype=np.int64)
        top = score == best_score[u]
        np.minimum.at(best, u[top], v[top])
        rest = v != best[u]
        second = _max_by(u[rest], score[rest], n)
        doubtful = rows[(best_score[rows] < self._ceiling[rows]) | (second[rows] < self._ceiling[rows])]
        for part, scores in self._blocks(doubtful):
            at = np.arange(len(part))
            scores[at, out[part]] = -np.inf
            best[part] = scores.argmax(axis=1)
            best_score[part] = scores[at, best[part]]
            scores[at, best[part]] = -np.inf
            second[part] = scores.max(axis=1)
            best[part[~np.isfinite(best_score[part])]] = len(self._base)
        return best[rows], best_score[rows], second[rows]

    def density_without(self, rows: Rows, partners: Rows, density: Matrix, k: int) -> Matrix:
        """Mean similarity of rows to their k nearest once one partner is gone. density: (p,) with it.

        Where there is no further row, the least similar one counts twice.
        """
        similarity, listed = self._own[0][rows], self._own[1][rows][:, :k] == partners[:, None]
        lost = np.where(listed, similarity[:, :k] - similarity[:, -1:], 0).sum(axis=1)
        shrunk: Matrix = (density - lost / k).astype(np.float32)
        return shrunk

    def settle_runner_up(self, rows: Rows) -> None:
        """Make the second-best scores of these rows exact too."""
        doubtful = (self.second_score[rows] < self._ceiling[rows]) & ~self._settled[rows]
        self._score_exactly(rows[doubtful], best_known=True)

    def lead(self, rows: Rows) -> Matrix:
        """Lead of the best partner over the second best; where there is no other partner, over a similarity of 0."""
        second = self.second_score[rows]
        return self.best_score[rows] - np.where(np.isfinite(second), second, 0)

    def _blocks(self, rows: Rows) -> Iterator[tuple[Rows, Matrix]]:
        """Rows with their scores against the whole other side, some at a time."""
        block = max(1, EXACT_BLOCK_BYTES // (4 * len(self._base)))
        for start in range(0, len(rows), block):
            part = rows[start : start + block]
            yield part, 2 * (self._queries[part] @ self._base.T) - self.density

    def _score_exactly(self, rows: Rows, *, best_known: bool) -> None:
        for part, scores in self._blocks(rows):
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
