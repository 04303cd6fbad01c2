"""Votes of a view, and proposals as a Spark job, against plain Python."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from clouds import problem
from veclink import arrow_cols, schemas, tables
from veclink.backends import Engine, faiss_cpu
from veclink.candidates import FEATURES, NANO
from veclink.kernels.bags import row_bags
from veclink.kernels.csls import Csls, Matches
from veclink.kernels.propose import propose
from veclink.kernels.spaces import Comparison, common_space
from veclink.kernels.views import Anchors, RoundViews, Schedule, View, plan_views
from veclink.shards import Shard
from veclink.stages import propose as stage
from veclink.stages.propose import evaluate_view, vote


def matches(pairs):
    rows = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    values = [np.full(len(rows), x, np.float32) for x in (0.5, 0.25, 0.75, 0.125, 0.0625)]
    return Matches(rows[:, 0], rows[:, 1], *values, uncertified=0)


def test_a_vote_says_what_was_proposed_and_what_was_held():
    held = np.array([[1, 1], [5, 6]])
    rows = {(r["source_row"], r["target_row"]): r for r in vote(matches([(1, 1), (2, 3)]), held, 4).to_pylist()}
    assert {k: (r["proposals"], r["held"], r["self_votes"]) for k, r in rows.items()} == {
        (1, 1): (4, 4, 4),  # proposed and held
        (2, 3): (4, 0, 0),  # proposed only
        (5, 6): (0, 4, 0),  # held only
    }
    assert rows[2, 3]["score_nano"] == 4 * 500_000_000
    assert rows[2, 3]["margin_nano"] == 4 * 250_000_000
    assert rows[5, 6]["score_nano"] == 0


def test_a_held_row_with_another_partner_is_not_held():
    rows = vote(matches([(1, 2)]), np.array([[1, 1]]), 1).to_pylist()
    assert [(r["source_row"], r["target_row"], r["held"]) for r in rows] == [(1, 2, 0), (1, 1, 1)]


def test_a_view_without_proposals_or_anchors_is_empty():
    assert vote(matches([]), np.empty((0, 2), np.int64), 1).num_rows == 0


@pytest.fixture(scope="module")
def world(spark, tmp_path_factory):
    """A problem, its shards, and anchors of which half are promoted."""
    p = problem(200, seeds=10)
    folder = tmp_path_factory.mktemp("world")
    shards = []
    for side, cloud in (("source", p.source), ("target", p.target)):
        frame = spark.createDataFrame(pa.table({"row": np.arange(len(cloud)), "vector": arrow_cols.column(cloud)}))
        tables.replace(frame.repartition(3), f"{folder}/{side}")
        files = tables.files(tables.read(spark, f"{folder}/{side}"))
        shards.append(Shard(tuple(files), len(cloud), cloud.shape[1], str(folder)))
    known = {tuple(s) for s in p.seeds.tolist()}
    promoted = np.array([(a, b) for a, b in sorted(p.truth.items()) if (a, b) not in known][:40])
    anchors = Anchors(p.source[p.seeds[:, 0]], p.target[p.seeds[:, 1]], p.seeds, promoted)
    return p, (shards[0], shards[1]), anchors


def test_views_drawn_by_a_task_are_those_of_the_kernel(spark, world):
    p, shards, anchors = world
    found = stage.plan(spark, shards[0], anchors, Schedule(4, 22), (3, 2))
    expected = plan_views(p.source[anchors.rows[:, 0]], 10, Schedule(4, 22), 3, 2)
    assert [(v.number, v.anchors.tolist(), v.count) for v in found] == [
        (v.number, v.anchors.tolist(), v.count) for v in expected
    ]


def test_proposals_are_the_sums_of_the_single_views(spark, world):
    p, shards, anchors = world
    views = [View(0, np.arange(10), 1), View(1, np.arange(5, 20), 2), View(2, np.arange(0), 1)]
    sums: dict[tuple[int, int], np.ndarray] = {}
    for view in views:
        vectors = anchors.vectors(view, (p.source, p.target))
        held = np.concatenate([anchors.seed_rows, anchors.rows[view.anchors]])
        found = propose((p.source, p.target), vectors, 20, "cloud", faiss_cpu.nearest)
        for row in vote(found, held, view.count).to_pylist():
            key = row.pop("source_row"), row.pop("target_row")
            sums[key] = sums.get(key, 0) + np.array(list(row.values()))
    for tasks in (None, 1, 2):
        frame = stage.proposals(spark, shards, anchors, views, Engine("faiss", 1, 20, "cloud", tasks))
        assert frame.columns == schemas.columns(schemas.PROPOSALS)
        rows = {(r[0], r[1]): list(r[2:]) for r in frame.collect()}
        assert rows == {k: v.tolist() for k, v in sums.items()}


def test_a_consensus_view_judges_the_rows_it_does_not_hold_and_asks_their_anchors_alone(world):
    p, _, anchors = world
    key, share = (3, 2), 0.5
    held = row_bags(len(p.source), 4, share, key)
    views = [View(i, np.flatnonzero(held[anchors.rows[:, 0], i]), 1) for i in range(4)]
    how = RoundViews(views, Comparison("cca", key=key), share)
    table = evaluate_view((p.source, p.target), anchors, how, 2, Engine("faiss", 1, 20, "cloud"))
    assert table.schema.names == schemas.columns(schemas.CANDIDATES)
    space = common_space((p.source, p.target), anchors.vectors(views[2], (p.source, p.target)), how.how, None)
    compared = Csls(*space, 20, faiss_cpu.nearest)
    asked = anchors.rows[~held[anchors.rows[:, 0], 2]]
    found = compared.matches()
    expected = {
        schemas.CANDIDATE: found.take(~held[found.source, 2]),
        schemas.NO_TARGET: compared.bereft(asked, 0),
        schemas.NO_SOURCE: compared.bereft(asked, 1),
    }
    rows = table.to_pylist()
    for role, matches in expected.items():
        mine = [r for r in rows if r["role"] == role]
        assert [(r["source_row"], r["target_row"]) for r in mine] == list(
            zip(matches.source.tolist(), matches.target.tolist(), strict=True)
        )
        assert all(r["votes"] == 1 for r in mine)
        for name in FEATURES:
            np.testing.assert_allclose([r[f"{name}_nano"] / NANO for r in mine], getattr(matches, name), atol=1e-8)
    assert sum(r["role"] != schemas.CANDIDATE for r in rows) > 0
