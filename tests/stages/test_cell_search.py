"""Views compared in cells, as Spark jobs, against all rows compared with all in plain numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from clouds import problem
from veclink import arrow_cols, schemas, tables
from veclink.backends import Engine, faiss_cpu
from veclink.candidates import CANDIDATE_SUMS, NANO
from veclink.kernels.spaces import Comparison, fit_maps
from veclink.kernels.views import Anchors, RoundViews, View
from veclink.shards import Shard
from veclink.stages import propose as propose_stage
from veclink.stages.cell_search import CellOptions, CellSearch, Sources

K = 10
ENGINE = Engine("faiss", 1, K, "cloud")
# Cells of some 25 rows a side; every cell is near to every other, so that nothing can be missed.
ALL_NEAR = CellOptions(rows=50, probes=99, group_rows=200, sample_rows=10_000)


@pytest.fixture(scope="module")
def world(spark, tmp_path_factory):
    """A problem, its shards, anchors of which half are promoted, and a folder for scratch tables."""
    p = problem(360, seeds=10, noise=0.05)
    folder = tmp_path_factory.mktemp("cells")
    shards = []
    for side, cloud in (("source", p.source), ("target", p.target)):
        frame = spark.createDataFrame(pa.table({"row": np.arange(len(cloud)), "vector": arrow_cols.column(cloud)}))
        tables.replace(frame.repartition(2), f"{folder}/{side}")
        files = tables.files(tables.read(spark, f"{folder}/{side}"))
        shards.append(Shard(tuple(files), len(cloud), cloud.shape[1], str(folder)))
    known = {tuple(s) for s in p.seeds.tolist()}
    promoted = np.array([(a, b) for a, b in sorted(p.truth.items()) if (a, b) not in known][:80])
    anchors = Anchors(p.source[p.seeds[:, 0]], p.target[p.seeds[:, 1]], p.seeds, promoted)
    return p, (shards[0], shards[1]), anchors, folder / "scratch"


def everyone(p) -> Sources:
    return Sources(len(p.source), (0,), p.seeds[:, 0])


def bags(p, anchors) -> RoundViews:
    how = RoundViews([View(i, np.empty(0, np.int64), 1) for i in range(3)], Comparison("cca", key=(0, 2)), 0.5)
    held = how.held(len(p.source))[anchors.rows[:, 0]]
    return replace(how, views=[View(i, np.flatnonzero(held[:, i]), 1) for i in range(3)])


def rows_of(table: pa.Table) -> dict[tuple, list]:
    """By role and pair: votes and sums."""
    return {(r["role"], r["source_row"], r["target_row"]): [r[c] for c in CANDIDATE_SUMS] for r in table.to_pylist()}


def test_one_map_with_all_cells_near_finds_what_all_with_all_finds(spark, world):
    p, shards, anchors, folder = world
    views = [View(i, np.arange(30 * i, 30 * i + 50), 1) for i in range(2)]
    start = RoundViews(views, Comparison("cca", key=(0, 1)), None)
    found = CellSearch(spark, shards, ENGINE, ALL_NEAR, str(folder)).candidates(everyone(p), anchors, start)
    assert found.column_names == schemas.columns(schemas.CANDIDATES)
    expected = rows_of(propose_stage.candidates(spark, shards, anchors, start, ENGINE).toArrow())
    got = rows_of(found)
    assert len(got) > 100
    assert got.keys() == expected.keys()
    for pair, sums in got.items():
        assert sums == pytest.approx(expected[pair], abs=2e-5 * NANO)
    assert not folder.exists()  # nothing of a round is left


def brute_force(p, anchors, round_views) -> dict[tuple, list]:
    """Votes and sums of a round, with the densities of its base map and no cells at all."""
    clouds = (p.source, p.target)
    everything = View(len(round_views.views), np.arange(len(anchors.rows)), 1)
    with_base = replace(round_views, views=[*round_views.views, everything])
    fitted = [
        fit_maps(clouds, anchors.vectors(view, clouds), with_base.comparison(i), faiss_cpu.nearest)
        for i, view in enumerate(with_base.views)
    ]
    base = [fitted[-1].apply(side, cloud) for side, cloud in enumerate(clouds)]
    similarity = base[0] @ base[1].T
    dense = [np.sort(s, axis=1)[:, -K:].mean(axis=1) for s in (similarity, similarity.T)]
    behind = [np.sort(s, axis=1)[:, -K - 1] for s in (similarity, similarity.T)]
    held = round_views.held(len(p.source))
    out: dict[tuple, list] = {}
    for i in range(len(round_views.views)):
        x, y = (fitted[i].apply(side, cloud) for side, cloud in enumerate(clouds))
        similarity = x @ y.T
        csls = 2 * similarity - dense[0][:, None] - dense[1]
        for u in np.flatnonzero(~held[:, i]):
            add_if_mutual(out, schemas.CANDIDATE, csls, u, dense, 0)
        for u, v in anchors.rows[~held[anchors.rows[:, 0], i]]:
            for side, role in ((0, schemas.NO_TARGET), (1, schemas.NO_SOURCE)):
                row = (u, v)[side]
                changed = [d.copy() for d in dense]
                changed[side][row] -= max(similarity[u, v] - behind[side][row], 0) / K
                lonely = 2 * similarity - changed[0][:, None] - changed[1]
                lonely[u, v] = -np.inf
                add_if_mutual(out, role, lonely if side == 0 else lonely.T, row, changed, side)
    return out


def add_if_mutual(out, role, csls, row, dense, side):
    """csls: (mine, others)."""
    other = csls[row].argmax()
    if csls[:, other].argmax() != row:
        return
    mine_lead, theirs_lead = (np.diff(np.sort(s)[-2:])[0] for s in (csls[row], csls[:, other]))
    densities = dense[side][row], dense[1 - side][other]
    pair, leads = ((row, other), (mine_lead, theirs_lead)) if side == 0 else ((other, row), (theirs_lead, mine_lead))
    densities = densities if side == 0 else densities[::-1]
    sums = out.setdefault((role, *map(int, pair)), [0] * 6)
    for i, value in enumerate((1, csls[row, other] * NANO, *(x * NANO for x in leads), *(d * NANO for d in densities))):
        sums[i] += value


def test_bags_and_decoys_are_those_of_all_with_all_under_the_densities_of_the_round(spark, world):
    p, shards, anchors, folder = world
    views = bags(p, anchors)
    expected = brute_force(p, anchors, views)
    roles = {role for role, _, _ in expected}
    assert roles == {schemas.CANDIDATE, schemas.NO_TARGET, schemas.NO_SOURCE}
    for group_rows in (100, 10_000):  # one cell a task, or all cells in one
        options = replace(ALL_NEAR, group_rows=group_rows)
        got = rows_of(CellSearch(spark, shards, ENGINE, options, str(folder)).candidates(everyone(p), anchors, views))
        assert got.keys() == expected.keys()
        for pair, sums in got.items():
            assert sums == pytest.approx(expected[pair], abs=1e-4 * NANO)


def test_only_some_sources_take_part_and_those_that_always_do(spark, world):
    p, shards, anchors, folder = world
    some = Sources(60, (4,), np.array([3, 200]))
    rows = some.rows(len(p.source))
    assert len(rows) in (60, 61, 62)
    assert {3, 200} <= set(rows.tolist())
    assert some.rows(50).tolist() == list(range(50))  # more than there are
    found = CellSearch(spark, shards, ENGINE, ALL_NEAR, str(folder)).candidates(some, anchors, bags(p, anchors))
    assert len(found) > 10
    assert set(found["source_row"].to_pylist()) <= set(rows.tolist())


def test_a_few_near_cells_find_nearly_all(spark, world):
    p, shards, anchors, folder = world
    views = bags(p, anchors)
    found = [
        rows_of(CellSearch(spark, shards, ENGINE, options, str(folder)).candidates(everyone(p), anchors, views))
        for options in (ALL_NEAR, replace(ALL_NEAR, probes=4))
    ]
    right = [{(u, v) for role, u, v in rows if role == schemas.CANDIDATE and p.truth.get(u) == v} for rows in found]
    assert len(right[0]) > 100
    assert len(right[0] & right[1]) > 0.95 * len(right[0])
