"""Propose: one Spark task evaluates one view; votes are reduced by key.

Vectors never travel: a task gets row numbers, reads the host's memory-mapped shards and returns pairs of row numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veclink import schemas, shards
from veclink.backends import Engine
from veclink.candidates import nano, of_view, summed
from veclink.kernels.csls import Csls, Matches
from veclink.kernels.propose import propose
from veclink.kernels.spaces import common_space
from veclink.kernels.views import Anchors, RoundViews, Schedule, View, contains, plan_views
from veclink.shards import Shard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Matrix = NDArray[np.float32]
Rows = NDArray[np.int64]


def plan(spark: SparkSession, source: Shard, anchors: Anchors, schedule: Schedule, key: tuple[int, int]) -> list[View]:
    """The views of a round. key: (random seed of the run, round number).

    One task draws them: farthest-point sampling needs the anchors' vectors, and only row numbers come back (8 bytes per
    anchor and view).
    """
    seeds = len(anchors.seed_source)
    if schedule.size <= seeds or not len(anchors.rows):
        return plan_views(np.empty((0, source.dim), np.float32), seeds, schedule, *key)
    rows = anchors.rows[:, 0]

    def draw(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                views = plan_views(np.asarray(shards.load(source)[rows]), seeds, schedule, *key)
                yield pa.RecordBatch.from_pydict(
                    {
                        "number": pa.array([v.number for v in views], pa.int32()),
                        "anchors": pa.array([v.anchors for v in views], pa.list_(pa.int64())),
                        "count": pa.array([v.count for v in views], pa.int32()),
                    }
                )

    drawn = spark.range(0, 1, 1, 1).mapInArrow(draw, "number INT, anchors ARRAY<BIGINT>, count INT").toArrow()
    views = [View(v["number"], np.asarray(v["anchors"], dtype=np.int64), v["count"]) for v in drawn.to_pylist()]
    return sorted(views, key=lambda v: v.number)


def proposals(
    spark: SparkSession, clouds: tuple[Shard, Shard], anchors: Anchors, views: list[View], engine: Engine
) -> DataFrame:
    """What the views of a round propose, summed by pair (columns schemas.PROPOSALS)."""
    from pyspark.sql import functions as F

    evaluate = _evaluator(clouds, anchors, views, engine)
    rows = spark.range(0, len(views), 1, min(engine.tasks or len(views), len(views))).mapInArrow(
        evaluate, schemas.PROPOSALS
    )
    sums = ["proposals", "held", "self_votes", "score_nano", "margin_nano"]
    types = {"proposals": "int", "held": "int", "self_votes": "int"}
    return rows.groupBy("source_row", "target_row").agg(*[F.sum(c).cast(types.get(c, "bigint")).alias(c) for c in sums])


def _evaluator(
    clouds: tuple[Shard, Shard], anchors: Anchors, views: list[View], engine: Engine
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def evaluate(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        source, target = (np.asarray(shards.load(c)) for c in clouds)
        for batch in batches:
            for number in batch.column("id").to_pylist():
                view = views[number]
                matches = propose(
                    (source, target),
                    anchors.vectors(view, (source, target)),
                    engine.k,
                    engine.bandwidth,
                    engine.nearest,
                )
                yield vote(matches, np.concatenate([anchors.seed_rows, anchors.rows[view.anchors]]), view.count)

    return evaluate


def candidates(
    spark: SparkSession, clouds: tuple[Shard, Shard], anchors: Anchors, round_views: RoundViews, engine: Engine
) -> DataFrame:
    """What the views of a round propose out of bag, summed by pair (columns schemas.CANDIDATES)."""

    def evaluate(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        both = np.asarray(shards.load(clouds[0])), np.asarray(shards.load(clouds[1]))
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield evaluate_view(both, anchors, round_views, number, engine)

    views = len(round_views.views)
    rows = spark.range(0, views, 1, min(engine.tasks or views, views)).mapInArrow(evaluate, schemas.CANDIDATES)
    return summed(rows)


def evaluate_view(
    clouds: tuple[Matrix, Matrix], anchors: Anchors, round_views: RoundViews, number: int, engine: Engine
) -> pa.RecordBatch:
    """What one view of a consensus round proposes (columns schemas.CANDIDATES)."""
    view, how = round_views.views[number], round_views.comparison(number)
    spaces = common_space(clouds, anchors.vectors(view, clouds), how, engine.nearest)
    held = round_views.held(len(clouds[0]))
    compared = Csls(*spaces, engine.k, engine.nearest)
    return of_view(compared, anchors.rows, None if held is None else held[:, number])


def vote(matches: Matches, held: Rows, count: int) -> pa.RecordBatch:
    """One view's votes as rows of schemas.PROPOSALS; pairs it holds as anchors but does not propose come last.

    held: (h, 2) row numbers of the view's anchors. count: how many identical views this one stands for.
    """
    proposed = np.stack([matches.source, matches.target], axis=1)
    own = contains(held, proposed)
    silent = held[~contains(proposed, held)]
    p, h = len(proposed), len(silent)
    ones, zeros = np.full(p, count), np.zeros(h, dtype=np.int64)
    int32 = pa.int32()
    return pa.RecordBatch.from_pydict(
        {
            "source_row": pa.array(np.concatenate([proposed[:, 0], silent[:, 0]])),
            "target_row": pa.array(np.concatenate([proposed[:, 1], silent[:, 1]])),
            "proposals": pa.array(np.concatenate([ones, zeros]), int32),
            "held": pa.array(np.concatenate([own * count, zeros + count]), int32),
            "self_votes": pa.array(np.concatenate([own * count, zeros]), int32),
            "score_nano": pa.array(np.concatenate([nano(matches.score) * count, zeros])),
            "margin_nano": pa.array(np.concatenate([nano(matches.margin) * count, zeros])),
        }
    )
