"""Mutual best partners under CSLS of the rows at home in some cells, from the rows around them.

    csls(u, v) = 2 s(u, v) - r_T(u) - r_S(v)

as in kernels/csls.py, but the densities r are known before: they are those of a map of the whole round, found in a
pass of its own over all cells. The best target of a source is sought in the cells nearest to the source's, the best
source of a target in those nearest to the target's. With all cells near, and densities of the same map, the answer is
the exact one.

Letters: n rows of a side around some cells, q of them asked, r dimensions, c cells, k list length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veclink.kernels.csls import Matches, Nearest

Matrix = NDArray[np.float32]
Rows = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Around:
    """The rows of one side in some cells and around them.

    rows: (n,) row numbers, rising. cells: (n,) the cell each is at home in. density: (n,) mean similarity of each to
    its k nearest on the other side, under the map of the round; edge: (n,) similarity to the one behind these.
    """

    rows: Rows
    cells: NDArray[np.int32]
    density: Matrix
    edge: Matrix


@dataclass(frozen=True)
class _Best:
    """Best partner (-1: none is around), its score, and the second-best score; the rows' own density is left out."""

    partner: Rows
    score: Matrix
    second: Matrix

    def take(self, chosen: Bools) -> _Best:
        return _Best(self.partner[chosen], self.score[chosen], self.second[chosen])


class _Cells:
    """Positions of the rows of one side by their cell."""

    def __init__(self, cells: NDArray[np.int32], near: Rows) -> None:
        self._order = np.argsort(cells, kind="stable")
        self._starts = np.searchsorted(cells[self._order], np.arange(len(near) + 1))
        self._near = near

    def around(self, cell: int) -> Rows:
        """Positions, rising, of the rows in the cells nearest to one."""
        parts = [self._order[self._starts[c] : self._starts[c + 1]] for c in self._near[cell]]
        return np.sort(np.concatenate(parts))


def working_bytes(seen: int, rows: int, dims: tuple[int, int], width: int) -> int:
    """Memory of a task, about: vectors and mapped points of `seen` rows around its cells, and numbers of all `rows`.

    dims: of the two sides; width: of the common space.
    """
    return seen * 4 * (max(dims) + 3 * width) + rows * 40


def by_cell(cells: NDArray[np.int32]) -> Iterator[tuple[int, Rows]]:
    """Every cell that some rows, (q,), are at home in, and their positions."""
    order = np.argsort(cells, kind="stable")
    present, starts = np.unique(cells[order], return_index=True)
    ends = np.append(starts, len(order))[1:]
    for cell, start, end in zip(present.tolist(), starts, ends, strict=True):
        yield cell, order[start:end]


def densities(
    queries: tuple[Matrix, NDArray[np.int32]],
    base: tuple[Matrix, NDArray[np.int32]],
    near: Rows,
    k: int,
    nearest: Nearest,
) -> tuple[Matrix, Matrix]:
    """(q,) mean similarity of every query to its k nearest base rows around it, and similarity to the one behind them.

    queries, base: (n, r) unit rows and the (n,) cells they are at home in. near: (c, p) of cells.nearest_cells. Where
    fewer rows are around, the mean is over all of them, and 0 where there are none.
    """
    density, edge = np.zeros(len(queries[0]), np.float32), np.zeros(len(queries[0]), np.float32)
    others = _Cells(base[1], near)
    for cell, rows in by_cell(queries[1]):
        around = others.around(cell)
        if len(around):
            similarity = nearest(queries[0][rows], base[0][around], min(k + 1, len(around)))[0]
            density[rows], edge[rows] = similarity[:, :k].mean(axis=1), similarity[:, -1]
    return density, edge


class CellMatches:
    """The rows at home in some cells, compared with those around them under one view.

    source, target: all rows that can be seen, with their points, (n, r) unit rows. near: (c, p) of
    cells.nearest_cells. home: (h,) the cells whose rows are asked. k: length of the lists of the densities.
    """

    def __init__(
        self,
        source: tuple[Around, Matrix],
        target: tuple[Around, Matrix],
        near: Rows,
        home: Rows,
        search: tuple[int, Nearest],
    ) -> None:
        self._sides, self._home = (source[0], target[0]), home
        self._k, self._nearest = search
        # One more dimension takes the density along: <(2x, -1), (y, r)> = 2 <x, y> - r.
        self._points = [np.concatenate([x, side.density[:, None]], axis=1) for side, x in (source, target)]
        self._cells = [_Cells(side.cells, near) for side in self._sides]

    def matches(self) -> Matches:
        """All mutual best partners of the sources at home, by row number, in the order of `source`."""
        source, target = self._sides
        u = np.flatnonzero(np.isin(source.cells, self._home))
        own = self._best(0, u)
        found = own.partner >= 0
        u, own = u[found], own.take(found)
        score, rival, won = self._theirs(0, u, own, source.density[u])
        u, v, own, score, rival = u[won], own.partner[won], own.take(won), score[won], rival[won]
        return Matches(
            source=source.rows[u],
            target=target.rows[v],
            score=own.score - source.density[u],
            source_lead=_lead(own.score, own.second),
            target_lead=_lead(score, rival),
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
        kept[kept] = np.isin(mine.cells[x[kept]], self._home)
        x, y = x[kept], y[kept]
        own = self._best(side, x, y)
        found = own.partner >= 0
        x, y, own = x[found], y[found], own.take(found)
        # Were the partner gone, the next nearest would move up.
        similarity = np.einsum("ij,ij->i", self._points[side][x, :-1], self._points[1 - side][y, :-1])
        density = mine.density[x] - np.maximum(similarity - mine.edge[x], 0) / self._k
        score, rival, won = self._theirs(side, x, own, density)
        z = own.partner
        of_mine = mine.rows[x], _lead(own.score, own.second), density
        of_theirs = others.rows[z], _lead(score, rival), others.density[z]
        (u, u_lead, u_dense), (v, v_lead, v_dense) = (of_mine, of_theirs) if side == 0 else (of_theirs, of_mine)
        return Matches(u, v, own.score - density, u_lead, v_lead, u_dense, v_dense, 0).take(won)

    def _theirs(self, side: int, rows: Rows, own: _Best, density: Matrix) -> tuple[Matrix, Matrix, Bools]:
        """As their best partners see some rows: their scores, those of the best others, and whether they win.

        A row that its partner does not see, because their cells are far apart, competes all the same.
        """
        others = self._sides[1 - side]
        asked, place = np.unique(own.partner, return_inverse=True)
        theirs = self._best(1 - side, asked)
        score = own.score + others.density[own.partner] - density
        first = theirs.partner[place] == rows
        rival = np.where(first, theirs.second[place], theirs.score[place])
        # A row that is first without a change of its density is first with a lower one, whatever the rounding.
        return score, rival, first | (score > rival)

    def _best(self, side: int, rows: Rows, without: Rows | None = None) -> _Best:
        """Best and second best of some rows of a side among those around; without: (q,) partners they may not have."""
        partner = np.full(len(rows), -1, np.int64)
        score, second = (np.full(len(rows), -np.inf, np.float32) for _ in range(2))
        for cell, at in by_cell(self._sides[side].cells[rows]):
            around = self._cells[1 - side].around(cell)
            if not len(around):
                continue
            queries = 2 * self._points[side][rows[at]]
            queries[:, -1] = -1
            wanted = 2 if without is None else 3
            scores, found = self._nearest(queries, self._points[1 - side][around], min(wanted, len(around)))
            partners = around[found]
            if without is not None:
                scores, partners = _leave_out(scores, partners, without[at])
            partner[at], score[at] = np.where(np.isfinite(scores[:, 0]), partners[:, 0], -1), scores[:, 0]
            if scores.shape[1] > 1:
                second[at] = scores[:, 1]
        return _Best(partner, score, second)


def _leave_out(scores: Matrix, partners: Rows, without: Rows) -> tuple[Matrix, Rows]:
    """Lists of falling scores with one partner a row moved to the end, its score -inf."""
    scores = np.where(partners == without[:, None], -np.inf, scores)
    order = np.argsort(-scores, axis=1, kind="stable")
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(partners, order, axis=1)


def _lead(best: Matrix, second: Matrix) -> Matrix:
    """Lead over the second best; where there is no other partner, over a similarity of 0."""
    lead: Matrix = np.maximum(best - np.where(np.isfinite(second), second, 0), 0)
    return lead


def _places(rows: Rows, wanted: Rows) -> tuple[Rows, Bools]:
    """Where row numbers stand among rising ones, and whether they are there."""
    if not len(rows):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), bool)
    place = np.minimum(np.searchsorted(rows, wanted), len(rows) - 1)
    return place, rows[place] == wanted
