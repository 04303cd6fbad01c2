"""Measure: links beside the truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def judged(links: DataFrame, truth: DataFrame) -> DataFrame:
    """Links that are not seeds, each with whether it is `correct`.

    links: source_id, target_id, confidence, is_seed. truth: source_id, target_id, one row per true pair.
    """
    from pyspark.sql import functions as F

    true = truth.select("source_id", F.col("target_id").alias("true_id"))
    rows = links.where("NOT is_seed").join(true, "source_id", "left")
    return rows.withColumn("correct", F.coalesce(F.col("true_id") == F.col("target_id"), F.lit(False))).drop("true_id")


def reliability(rows: DataFrame, bins: int) -> DataFrame:
    """Links, summed confidence and correct ones per confidence bin: bin, links, confidence, correct; bin 0 holds 0."""
    from pyspark.sql import functions as F

    position = F.least(F.floor(F.col("confidence") * bins), F.lit(bins - 1)).cast("int")
    return (
        rows.groupBy(position.alias("bin"))
        .agg(
            F.count("*").alias("links"),
            F.sum("confidence").alias("confidence"),
            F.sum(F.col("correct").cast("bigint")).alias("correct"),
        )
        .sort("bin")
    )
