"""Cells, and matches inside them, against all rows compared with all."""

from __future__ import annotations

import numpy as np
import pytest

from clouds import two_warps, unit
from veclink.backends.numpy_tiles import nearest
from veclink.kernels.cell_matches import Around, CellMatches, densities
from veclink.kernels.cells import cell_centres, cell_groups, home_cells, homes, nearest_cells
from veclink.kernels.csls import Csls, Matches


def test_every_row_is_at_home_in_the_cell_of_the_nearest_centre():
    points = unit(np.random.default_rng(0).standard_normal((500, 8)))
    centres = cell_centres(points, 40, np.random.default_rng(1))
    cells = home_cells(points, centres)
    assert (cells == [max(range(len(centres)), key=lambda c: x @ centres[c]) for x in points]).all()
    by_cell = homes(cells, len(centres))
    for c in range(len(centres)):
        assert by_cell.rows(np.array([c])).tolist() == np.flatnonzero(cells == c).tolist()
    some = np.array([3, 1])
    assert by_cell.rows(some).tolist() == np.flatnonzero(np.isin(cells, some)).tolist()


def test_crowded_regions_get_more_cells_and_equal_rows_one():
    rng = np.random.default_rng(2)
    crowd = unit(np.r_[rng.normal(5, 0.1, (900, 6)), rng.normal(0, 1, (100, 6))])
    sizes = np.bincount(home_cells(crowd, cell_centres(crowd, 50, rng)))
    assert sizes.max() < 100  # rows move to a nearer centre after the last cut
    crowd = unit(np.r_[rng.normal(5, 0.1, (980, 6)), np.eye(6)[rng.integers(6, size=20)]])  # nearly all in one place
    assert np.bincount(home_cells(crowd, cell_centres(crowd, 50, rng))).max() < 100
    alike = np.repeat(unit(rng.standard_normal((1, 6))), 300, axis=0)
    assert len(cell_centres(alike, 50, rng)) == 1


def test_rows_in_no_cell_are_at_home_nowhere():
    by_cell = homes(np.array([1, -1, 0, 1], np.int32), 3)
    assert [by_cell.rows(np.array([c])).tolist() for c in range(3)] == [[2], [0, 3], []]


def test_groups_hold_all_cells_in_order_and_few_rows_each():
    sizes = np.array([5, 3, 40, 2, 2, 2, 9])
    groups = cell_groups(sizes, 10)
    assert [g.tolist() for g in groups] == [[0, 1], [2], [3, 4, 5], [6]]
    assert [g.tolist() for g in cell_groups(np.array([3]), 1)] == [[0]]


def test_the_nearest_cell_is_the_cell_itself():
    centres = unit(np.random.default_rng(3).standard_normal((20, 5)))
    near = nearest_cells(centres, 4)
    assert near[:, 0].tolist() == list(range(20))
    for c, found in enumerate(near.tolist()):
        others = sorted(set(range(20)) - {c}, key=lambda o: -float(centres[c] @ centres[o]))
        assert found == [c, *others[:3]]
    assert nearest_cells(centres, 99).shape == (20, 20)


def world(n=300, m=340):
    """Two clouds in one space, with noise; 150 objects are in both."""
    rng = np.random.default_rng(5)
    objects = two_warps(n + m, (24, 24), 0.0, rng)[0]
    a, b = (unit(objects + 0.05 * rng.standard_normal(objects.shape)) for _ in range(2))
    return a[:n], b[n - 150 : n - 150 + m]


def in_cells(source, target, k, cells_seen, pairs=None):
    """Matches of all cells, three at a time; with pairs: what those find without their partner, of either side."""
    centres = cell_centres(np.concatenate([source, target]), 60, np.random.default_rng(0))
    assert len(centres) > 5
    near = nearest_cells(centres, cells_seen)
    points, cells = (source, target), [home_cells(x, centres) for x in (source, target)]
    dense = [densities((points[i], cells[i]), (points[1 - i], cells[1 - i]), near, k, nearest) for i in (0, 1)]
    found = [[], [], []]
    for group in np.array_split(np.arange(len(centres)), len(centres) // 3):
        sides = []
        for x, home, (density, edge) in zip(points, cells, dense, strict=True):
            rows = homes(home, len(centres)).rows(np.unique(near[group]))
            sides.append((Around(rows, home[rows], density[rows], edge[rows]), x[rows]))
        some = CellMatches(*sides, near, group, (k, nearest))
        found[0].append(some.matches())
        if pairs is not None:
            found[1].append(some.bereft(pairs, 0))
            found[2].append(some.bereft(pairs, 1))
    return [joined(parts) for parts in found if parts]


def joined(parts: list[Matches]) -> dict[tuple[int, int], tuple[float, ...]]:
    names = ("score", "source_lead", "target_lead", "source_density", "target_density")
    columns = [[x for p in parts for x in getattr(p, name).tolist()] for name in ("source", "target", *names)]
    return {(u, v): values for u, v, *values in zip(*columns, strict=True)}


@pytest.mark.parametrize("k", [1, 10])
def test_with_all_cells_near_the_answer_is_the_exact_one(k):
    source, target = world()
    exact = Csls(source, target, k, nearest)
    matched = exact.matches()
    pairs = np.stack([matched.source, matched.target], axis=1)[::2]
    expected = [joined([x]) for x in (matched, exact.bereft(pairs, 0), exact.bereft(pairs, 1))]
    for got, wanted in zip(in_cells(source, target, k, 999, pairs), expected, strict=True):
        assert len(wanted) > 20
        assert got.keys() == wanted.keys()
        for pair, values in wanted.items():
            assert got[pair] == pytest.approx(values, abs=2e-5)


def test_a_few_near_cells_find_nearly_all_of_it():
    source, target = world()
    [whole], [part] = in_cells(source, target, 10, 999), in_cells(source, target, 10, 4)
    assert len(whole.keys() & part.keys()) > 0.9 * len(whole)


def test_a_partner_that_is_not_around_is_not_asked_for():
    source, target = world()
    sides = []
    for x, rows in ((source, np.arange(0, 300, 2)), (target, np.arange(0, 340, 2))):
        zeros = np.zeros(len(rows), np.float32)
        sides.append((Around(rows, (rows >= 100).astype(np.int32), zeros, zeros), x[rows]))
    # Odd rows are not around, rows from 100 on not at home in cell 0.
    pairs = np.array([[1, 0], [0, 1], [200, 0], [4, 6]])
    some = CellMatches(*sides, nearest_cells(np.eye(2, dtype=np.float32), 2), np.array([0]), (5, nearest))
    assert set(some.bereft(pairs, 0).source.tolist()) <= {4}
    assert set(some.bereft(pairs, 1).target.tolist()) <= {0, 6}


def test_cells_without_rows_of_the_other_side_match_nothing():
    source, _ = world()
    rows, zeros = np.arange(10), np.zeros(10, np.float32)
    near = nearest_cells(np.eye(2, dtype=np.float32), 1)
    sides = [(Around(rows, np.full(10, cell, np.int32), zeros, zeros), source[:10]) for cell in (0, 1)]
    some = CellMatches(*sides, near, np.array([0, 1]), (5, nearest))
    assert len(some.matches().source) == 0
    assert len(some.bereft(np.array([[1, 1]]), 0).source) == 0
    nobody = Around(*(x[:0] for x in (rows, sides[0][0].cells, zeros, zeros))), source[:0]
    assert (
        len(CellMatches(sides[0], nobody, near, np.array([0, 1]), (5, nearest)).bereft(np.array([[1, 1]]), 0).source)
        == 0
    )
    density, edge = densities((source[:10], sides[0][0].cells), (source[:10], sides[1][0].cells), near, 5, nearest)
    assert not density.any()
    assert not edge.any()
