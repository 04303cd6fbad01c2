"""Mutual best partners under CSLS of the rows at home in one cell, from the rows around them.

    csls(u, v) = 2 s(u, v) - r_T(u) - r_S(v)

as in kernels/csls.py, but the densities r are known before: they are those of a map of the whole round, found in a
pass of its own over all cells. A cell then needs nothing of the others: the best target v of every source at home, and
the best source of each such v, both among the rows of the nearest cells. With all cells near, and densities of the
same map, the answer is the exact one.

Letters: n sources and m targets around a cell, k list length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veclink.kernels.csls import EXACT_BLOCK_BYTES, Matches, Nearest

Matrix = NDArray[np.float32]
Rows = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Around:
    """The rows around a cell, of one side.

    rows: (n,) row numbers, rising. points: (n, r) unit rows in the common space. density: (n,) mean similarity of each
    to its k nearest on the other side, under the map of the round. home: (n,) whether it is at home in the cell.
    """

    rows: Rows
    points: Matrix
    density: Matrix
    home: Bools


@dataclass(frozen=True)
class _Best:
    """Best partner, its score, and the second-best score of some rows; scores leave out the rows' own density."""

    partner: Rows
    score: Matrix
    second: Matrix

    def take(self, chosen: Bools) -> _Best:
        return _Best(self.partner[chosen], self.score[chosen], self.second[chosen])


def densities(queries: Matrix, base: Matrix, k: int, nearest: Nearest) -> Matrix:
    """(q,) mean similarity of every query to its k nearest base rows, or to all where there are fewer."""
    mean: Matrix = nearest(queries, base, min(k, len(base)))[0].mean(axis=1)
    return mean


class CellMatches:
    """One cell under one view. source, target: at least one row each. k: length of the lists of the densities."""

    def __init__(self, source: Around, target: Around, k: int) -> None:
        self._sides, self._k = (source, target), k

    def matches(self) -> Matches:
        """All mutual best partners of the sources at home, by row number, in the order of `source`."""
        source, target = self._sides
        u = np.flatnonzero(source.home)
        own = self._best(0, u)
        asked, place = np.unique(own.partner, return_inverse=True)
        other = self._best(1, asked)
        mutual = other.partner[place] == u
        u, v, theirs = u[mutual], own.partner[mutual], place[mutual]
        return Matches(
            source=source.rows[u],
            target=target.rows[v],
            score=own.score[mutual] - source.density[u],
            source_lead=_lead(own.score[mutual], own.second[mutual]),
            target_lead=_lead(other.score[theirs], other.second[theirs]),
            source_density=source.density[u],
            target_density=target.density[v],
            uncertified=0,
        )

    def bereft(self, pairs: Rows, side: int) -> Matches:
        """What rows at home would be matched with if their partner were not there; as `csls.Csls.bereft`.

        pairs: (p, 2) row numbers; those whose row of that side is not at home, or whose partner is not around, are
        left out: a partner that is not seen cannot be taken away.
        """
        mine, others = self._sides[side], self._sides[1 - side]
        x, here = _places(mine.rows, pairs[:, side])
        y, seen = _places(others.rows, pairs[:, 1 - side])
        kept = here & seen
        kept[kept] = mine.home[x[kept]]
        x, y = x[kept], y[kept]
        own = self._best(side, x, y)
        found = np.isfinite(own.score)
        x, y, own = x[found], y[found], own.take(found)
        density = mine.density[x] - self._lost(side, x, y)
        z = own.partner
        asked, place = np.unique(z, return_inverse=True)
        theirs = self._best(1 - side, asked)
        # As the partner sees it: its own density left out.
        score = own.score + others.density[z] - density
        rival = np.where(theirs.partner[place] == x, theirs.second[place], theirs.score[place])
        won = score > rival
        own_lead, other_lead = _lead(own.score, own.second), _lead(score, rival)
        of_mine = mine.rows[x], own_lead, density
        of_theirs = others.rows[z], other_lead, others.density[z]
        (u, u_lead, u_dense), (v, v_lead, v_dense) = (of_mine, of_theirs) if side == 0 else (of_theirs, of_mine)
        return Matches(u, v, own.score - density, u_lead, v_lead, u_dense, v_dense, 0).take(won)

    def _lost(self, side: int, rows: Rows, partners: Rows) -> Matrix:
        """What the densities of rows lose with one partner: were it gone, the next nearest would move up."""
        out, base = np.empty(len(rows), np.float32), self._sides[1 - side].points
        k = min(self._k, len(base))
        for part, similarity in self._similarities(side, rows):
            partner = similarity[np.arange(len(similarity)), partners[part]]
            falling = -np.partition(-similarity, min(k, len(base) - 1), axis=1)[:, : k + 1]
            # The least similar of the nearest k, and the one behind it (itself where there is none).
            last = np.sort(falling, axis=1)[:, : max(1, falling.shape[1] - k + 1)]
            kth, behind = last[:, -1], last[:, 0]
            out[part] = np.where(partner >= kth, partner - behind, 0) / k
        return out

    def _best(self, side: int, rows: Rows, without: Rows | None = None) -> _Best:
        """Best and second best of some rows of a side among all around; without: (q,) partners they may not have."""
        others = self._sides[1 - side]
        partner, score, second = np.empty(len(rows), np.int64), *(np.empty(len(rows), np.float32) for _ in range(2))
        for part, similarity in self._similarities(side, rows):
            scores = 2 * similarity - others.density
            at = np.arange(len(scores))
            if without is not None:
                scores[at, without[part]] = -np.inf
            partner[part] = scores.argmax(axis=1)
            score[part] = scores[at, partner[part]]
            scores[at, partner[part]] = -np.inf
            second[part] = scores.max(axis=1)
        return _Best(partner, score, second)

    def _similarities(self, side: int, rows: Rows) -> Iterator[tuple[slice, Matrix]]:
        """Some rows at a time against all of the other side: their slice and (b, m) similarities."""
        mine, others = self._sides[side], self._sides[1 - side]
        block = max(1, EXACT_BLOCK_BYTES // (4 * len(others.points)))
        for start in range(0, len(rows), block):
            part = slice(start, min(start + block, len(rows)))
            yield part, mine.points[rows[part]] @ others.points.T


def _lead(best: Matrix, second: Matrix) -> Matrix:
    """Lead over the second best; where there is no other partner, over a similarity of 0."""
    lead: Matrix = np.maximum(best - np.where(np.isfinite(second), second, 0), 0)
    return lead


def _places(rows: Rows, wanted: Rows) -> tuple[Rows, Bools]:
    """Where row numbers stand among rising ones, and whether they are there."""
    place = np.minimum(np.searchsorted(rows, wanted), len(rows) - 1)
    return place, rows[place] == wanted
