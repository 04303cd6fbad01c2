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
from veclink.steps import step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Matrix = NDArray[np.float32]
Vectors = tuple[Matrix, Matrix]
Rows = NDArray[np.int64]


def partner_ranks(
    spark: SparkSession, clouds: tuple[Shard, Shard], known: Rows, seeds: Vectors, how: tuple[float, int]
) -> NDArray[np.float64]:
    """(s, 2) ranks of the seeds' partners under a map of known pairs.

    known: (p, 2) rows of the clouds. seeds: (s, d_s) and (s, d_t) unit rows. how: ridge and width of the map.
    """

    def ask(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                both = np.asarray(shards.load(clouds[0])), np.asarray(shards.load(clouds[1]))
                ranks = ranks_in(both, known, seeds, how)
                columns = [pa.array(np.arange(len(ranks))), pa.array(ranks[:, 0]), pa.array(ranks[:, 1])]
                yield pa.RecordBatch.from_arrays(columns, ["seed", "source_rank", "target_rank"])

    asked = spark.range(0, 1, 1, 1).mapInArrow(ask, "seed BIGINT, source_rank DOUBLE, target_rank DOUBLE")
    with step(spark, "audit"):
        table = asked.toArrow().sort_by("seed")
    return np.stack([table[c].to_numpy() for c in ("source_rank", "target_rank")], axis=1)


def ranks_in(clouds: Vectors, known: Rows, seeds: Vectors, how: tuple[float, int]) -> NDArray[np.float64]:
    """The same for clouds at hand."""
    return seed_audit.partner_ranks(clouds, (clouds[0][known[:, 0]], clouds[1][known[:, 1]]), seeds, *how)
