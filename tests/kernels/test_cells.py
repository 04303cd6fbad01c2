"""Cells, and matches inside them, against all rows compared with all."""

from __future__ import annotations

import numpy as np
import pytest

from clouds import two_warps, unit
from veclink.backends.numpy_tiles import nearest
from veclink.kernels.cell_matches import Around, CellMatches, densities
from veclink.kernels.cells import cell_centres, home_cells, homes, nearest_cells
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
    """Matches of all cells; with pairs: what those find without their partner, of either side."""
    centres = cell_centres(np.concatenate([source, target]), 60, np.random.default_rng(0))
    assert len(centres) > 5
    near = nearest_cells(centres, cells_seen)
    sides = [homes(home_cells(x, centres), len(centres)) for x in (source, target)]
    dense = densities(source, target, k, nearest), densities(target, source, k, nearest)
    found = [[], [], []]
    for c in range(len(centres)):
        around = []
        for points, by_cell, density in zip((source, target), sides, dense, strict=True):
            rows = by_cell.rows(near[c])
            home = np.isin(rows, by_cell.rows(np.array([c])))
            around.append(Around(rows, points[rows], density[rows], home))
        if all(len(x.rows) for x in around):
            cell = CellMatches(*around, k)
            found[0].append(cell.matches())
            if pairs is not None:
                found[1].append(cell.bereft(pairs, 0))
                found[2].append(cell.bereft(pairs, 1))
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
    dense = densities(source, target, 5, nearest), densities(target, source, 5, nearest)
    rows = np.arange(0, 300, 2), np.arange(0, 340, 2)
    sides = [Around(r, x[r], d[r], r < 100) for r, x, d in zip(rows, (source, target), dense, strict=True)]
    pairs = np.array([[1, 0], [0, 1], [200, 0], [4, 6]])  # odd rows are not around, 200 is not at home
    assert set(CellMatches(*sides, 5).bereft(pairs, 0).source.tolist()) <= {4}
    assert set(CellMatches(*sides, 5).bereft(pairs, 1).target.tolist()) <= {0, 6}
