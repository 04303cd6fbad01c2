"""Seed audit: one Spark task compares the seeds with the whole clouds; two numbers a seed come back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veclink import shards
from veclink.kernels import seed_audit
from veclink.shards import Shard
from veclink.stages.propose import Anchors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Matrix = NDArray[np.float32]


def partner_ranks(
    spark: SparkSession, clouds: tuple[Shard, Shard], anchors: Anchors, how: tuple[float, int]
) -> NDArray[np.float64]:
    """(s, 2) ranks of the seeds' partners under a map of the promoted pairs. how: ridge and width of the map."""

    def ask(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                ranks = ranks_in((np.asarray(shards.load(clouds[0])), np.asarray(shards.load(clouds[1]))), anchors, how)
                columns = [pa.array(np.arange(len(ranks))), pa.array(ranks[:, 0]), pa.array(ranks[:, 1])]
                yield pa.RecordBatch.from_arrays(columns, ["seed", "source_rank", "target_rank"])

    asked = spark.range(0, 1, 1, 1).mapInArrow(ask, "seed BIGINT, source_rank DOUBLE, target_rank DOUBLE")
    table = asked.toArrow().sort_by("seed")
    return np.stack([table[c].to_numpy() for c in ("source_rank", "target_rank")], axis=1)


def ranks_in(clouds: tuple[Matrix, Matrix], anchors: Anchors, how: tuple[float, int]) -> NDArray[np.float64]:
    """The same for clouds at hand."""
    promoted = clouds[0][anchors.rows[:, 0]], clouds[1][anchors.rows[:, 1]]
    return seed_audit.partner_ranks(clouds, promoted, (anchors.seed_source, anchors.seed_target), *how)
