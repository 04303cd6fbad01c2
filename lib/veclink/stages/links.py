"""Links: promoted pairs of points become pairs of the caller's ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EVIDENCE = ("confidence", "votes", "opportunities", "score", "margin")
_FEATURES = ("source_lead", "target_lead", "source_density", "target_density")


def link_ids(promoted: DataFrame, source_ids: DataFrame, target_ids: DataFrame, seeds: DataFrame) -> DataFrame:
    """One row per link (columns schemas.LINKS), one to one in ids.

    promoted: source_row, target_row and the evidence of each pair of points; the pairs of seeds among them.
    source_ids, target_ids: schemas.IDS. seeds: source_id, target_id as given (may be empty).
    Seeds are kept as given. A pair of points with several ids on either side (exact duplicates) is linked id by id in
    sorted order, as far as both sides reach. Which of them belong together cannot be seen from the vectors, so their
    confidence is that of the points divided by the number of copies.
    """
    from pyspark.sql import functions as F

    source = source_ids.select(
        F.col("id").alias("source_id"), F.col("row").alias("source_row"), F.col("copies").alias("source_copies")
    )
    target = target_ids.select(
        F.col("id").alias("target_id"), F.col("row").alias("target_row"), F.col("copies").alias("target_copies")
    )
    given = seeds.join(source, "source_id").join(target, "target_id")
    given = given.join(promoted, ["source_row", "target_row"], "left")
    given = given.withColumn("confidence", F.lit(1.0)).withColumn("is_seed", F.lit(True))
    free_source = _numbered(source.join(seeds, "source_id", "left_anti"), "source")
    free_target = _numbered(target.join(seeds, "target_id", "left_anti"), "target")
    found = promoted.join(free_source, "source_row").join(free_target, ["target_row", "position"])
    # Any one of the copies may be the right one.
    copies = F.greatest("source_copies", "target_copies")
    found = found.withColumn("confidence", F.col("confidence") / copies).withColumn("is_seed", F.lit(False))
    columns = ["source_id", "target_id", *_EVIDENCE, "is_seed", "source_copies", "target_copies", *_FEATURES]
    return given.select(columns).unionByName(found.select(columns)).sort("source_id")


def _numbered(ids: DataFrame, side: str) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    within = Window.partitionBy(f"{side}_row").orderBy(f"{side}_id")
    return ids.withColumn("position", F.row_number().over(within))
