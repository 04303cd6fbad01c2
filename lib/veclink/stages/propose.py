"""Propose: one Spark task evaluates one view; votes are reduced by key.

Vectors never travel: a task gets row numbers, reads the host's memory-mapped shards and returns pairs of row numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veclink import backends, schemas, shards
from veclink.kernels.bags import row_bags
from veclink.kernels.csls import Csls, Matches, Nearest
from veclink.kernels.propose import propose
from veclink.kernels.spaces import Comparison, common_space
from veclink.kernels.views import Schedule, View, plan_views
from veclink.shards import Shard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Matrix = NDArray[np.float32]
Rows = NDArray[np.int64]

# Scores are summed as whole numbers: float sums would depend on the order in which Spark adds them.
NANO = 1e9

# Columns of schemas.CANDIDATES that name a pair, and those that are summed.
CANDIDATE_KEYS = ("role", *schemas.ROWS)
CANDIDATE_SUMS = tuple(schemas.columns(schemas.CANDIDATES)[len(CANDIDATE_KEYS) :])

# What is known of a match beside its rows, as it stands in schemas.CANDIDATES.
FEATURES = ("score", "source_lead", "target_lead", "source_density", "target_density")


@dataclass(frozen=True)
class Anchors:
    """Known and promoted pairs. Seeds carry their vectors (they may lie in neither cloud), the others row numbers.

    seed_source, seed_target: (s, d) unit rows, paired by position. seed_rows: (s, 2) row numbers of the seeds that lie
    in the clouds, (0, 2) where none does. rows: (p, 2) row numbers of the promoted pairs, seeds not included.
    """

    seed_source: Matrix
    seed_target: Matrix
    seed_rows: Rows
    rows: Rows

    def __len__(self) -> int:
        return len(self.seed_source) + len(self.rows)

    def keep_seeds(self, kept: NDArray[np.bool_]) -> Anchors:
        """The same with some of the seeds, by (s,) flags."""
        rows = self.seed_rows[kept] if len(self.seed_rows) else self.seed_rows
        return replace(self, seed_source=self.seed_source[kept], seed_target=self.seed_target[kept], seed_rows=rows)

    def vectors(self, view: View, clouds: tuple[Matrix, Matrix]) -> tuple[Matrix, Matrix]:
        """The view's anchors on each side: the seeds first, then its promoted pairs."""
        chosen = self.rows[view.anchors]
        return (
            np.concatenate([self.seed_source, clouds[0][chosen[:, 0]]]),
            np.concatenate([self.seed_target, clouds[1][chosen[:, 1]]]),
        )


@dataclass(frozen=True)
class Engine:
    """How a task computes: engine name, its threads, csls list length, source of the bandwidth.

    tasks: Spark tasks the views of a round are dealt to, None: one per view. It never changes the result.
    """

    backend: str
    threads: int
    k: int
    bandwidth: str
    tasks: int | None = None


@dataclass(frozen=True)
class RoundViews:
    """The views of one consensus round, and how they compare.

    bag_share: share of the views that hold a source row; the others judge it, and ask its anchor without the partner.
    None: every view judges every row, and there are no decoys.
    """

    views: list[View]
    how: Comparison
    bag_share: float | None


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
        search = backends.load(engine.backend).nearest
        source, target = (np.asarray(shards.load(c)) for c in clouds)
        for batch in batches:
            for number in batch.column("id").to_pylist():
                view = views[number]
                matches = propose(
                    (source, target),
                    anchors.vectors(view, (source, target)),
                    engine.k,
                    engine.bandwidth,
                    lambda q, b, k: search(q, b, k, engine.threads),
                )
                yield vote(matches, np.concatenate([anchors.seed_rows, anchors.rows[view.anchors]]), view.count)

    return evaluate


def candidates(
    spark: SparkSession,
    clouds: tuple[Shard, Shard],
    anchors: Anchors,
    round_views: RoundViews,
    engine: Engine,
) -> DataFrame:
    """What the views of a round propose out of bag, summed by pair (columns schemas.CANDIDATES)."""
    from pyspark.sql import functions as F

    views = round_views.views

    def evaluate(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        search = backends.load(engine.backend).nearest
        source, target = (np.asarray(shards.load(c)) for c in clouds)

        def nearest(queries: Matrix, base: Matrix, k: int) -> tuple[Matrix, Rows]:
            return search(queries, base, k, engine.threads)  # type: ignore[no-any-return]

        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield evaluate_view((source, target), anchors, round_views, number, (engine.k, nearest))

    tasks = min(engine.tasks or len(views), len(views))
    rows = spark.range(0, len(views), 1, tasks).mapInArrow(evaluate, schemas.CANDIDATES)
    keys, sums = CANDIDATE_KEYS, CANDIDATE_SUMS
    return rows.groupBy(*keys).agg(*[F.sum(c).cast("bigint").alias(c) for c in sums])


def evaluate_view(
    clouds: tuple[Matrix, Matrix], anchors: Anchors, round_views: RoundViews, number: int, search: tuple[int, Nearest]
) -> pa.RecordBatch:
    """What one view of a consensus round proposes (columns schemas.CANDIDATES). search: length of lists, and how."""
    view, (k, nearest) = round_views.views[number], search
    how = replace(round_views.how, key=(*round_views.how.key, view.number))
    compared = Csls(*common_space(clouds, anchors.vectors(view, clouds), how, nearest), k, nearest)
    found = compared.matches()
    if round_views.bag_share is None:
        return _votes({schemas.CANDIDATE: found})
    held = row_bags(len(clouds[0]), len(round_views.views), round_views.bag_share, round_views.how.key)[:, view.number]
    asked = anchors.rows[~held[anchors.rows[:, 0]]]
    return _votes(
        {
            schemas.CANDIDATE: found.take(~held[found.source]),
            schemas.NO_TARGET: compared.bereft(asked, 0),
            schemas.NO_SOURCE: compared.bereft(asked, 1),
        }
    )


def _votes(found: dict[str, Matches]) -> pa.RecordBatch:
    """One view's matches by role, a vote each."""
    columns: dict[str, list[pa.Array]] = {name: [] for name in (*CANDIDATE_KEYS, *CANDIDATE_SUMS)}
    for role, matches in found.items():
        count = len(matches.source)
        values = {
            "role": pa.array([role] * count, pa.string()),
            "source_row": pa.array(matches.source, pa.int64()),
            "target_row": pa.array(matches.target, pa.int64()),
            "votes": pa.array(np.ones(count, np.int64)),
        }
        values |= {f"{name}_nano": pa.array(_nano(getattr(matches, name))) for name in FEATURES}
        for name, column in values.items():
            columns[name].append(column)
    return pa.RecordBatch.from_pydict({name: pa.concat_arrays(parts) for name, parts in columns.items()})


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
            "score_nano": pa.array(np.concatenate([_nano(matches.score) * count, zeros])),
            "margin_nano": pa.array(np.concatenate([_nano(matches.margin) * count, zeros])),
        }
    )


def _nano(values: Matrix) -> Rows:
    return np.rint(values.astype(np.float64) * NANO).astype(np.int64)


def contains(pairs: Rows, wanted: Rows) -> NDArray[np.bool_]:
    """For every wanted (source, target) pair, whether it is among `pairs`."""
    joined = np.concatenate([pairs, wanted])
    _, key = np.unique(joined, axis=0, return_inverse=True)
    return np.isin(key[len(pairs) :], key[: len(pairs)])
