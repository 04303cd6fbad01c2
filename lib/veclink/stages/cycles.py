"""Loops of links among three clouds, by joins; and the way from ids to points and back.

Links are counted between points (distinct vectors): ids that share a vector cannot be told apart, so a loop closes if
it comes back to the same point, whichever of its ids the links name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CLOSED, BROKEN, OPEN = "closed", "broken", "open"


def point_links(links: DataFrame, source_ids: DataFrame, target_ids: DataFrame) -> DataFrame:
    """Links with the points of their ids: the columns of `links`, source_row, target_row and point_confidence.

    links: schemas.LINKS. source_ids, target_ids: schemas.IDS. The confidence of a link that is no seed was divided by
    the number of copies (stages/links.py); point_confidence is without that division.
    """
    from pyspark.sql import functions as F

    source = source_ids.select(F.col("id").alias("source_id"), F.col("row").alias("source_row"))
    target = target_ids.select(F.col("id").alias("target_id"), F.col("row").alias("target_row"))
    whole = F.least(F.col("confidence") * _copies(), F.lit(1.0))
    certain = F.when(F.col("is_seed"), F.lit(1.0)).otherwise(whole)
    return links.join(source, "source_id").join(target, "target_id").withColumn("point_confidence", certain)


def point_pairs(linked: DataFrame) -> DataFrame:
    """One row per linked pair of points: source_row, target_row, confidence. linked: rows of `point_links`."""
    from pyspark.sql import functions as F

    return linked.groupBy("source_row", "target_row").agg(F.max("point_confidence").alias("confidence"))


def loops(pairs: Sequence[DataFrame]) -> DataFrame:
    """Closed and broken loops and open chains of three clouds a, b, c: kind, first, centre, last (kernels/cycles.py).

    pairs: the links a - b, a - c and b - c, each with link (a number), and source_row and target_row. first and last
    are the ends of a broken loop; in an open chain last is null.
    """
    views = _both_ways(pairs)
    found = [_around(views, "ab", "c", closed=True), _around(views, "ac", "b"), _around(views, "bc", "a")]
    found += [_open(views, "b", "ac"), _open(views, "a", "bc"), _open(views, "c", "ab")]
    whole = found[0]
    for part in found[1:]:
        whole = whole.unionByName(part)
    return whole


def _both_ways(pairs: Sequence[DataFrame]) -> dict[str, DataFrame]:
    """The links by their two clouds, from either side: columns link_xy and the rows x and y."""
    views = {}
    for there, pair in zip(("ab", "ac", "bc"), pairs, strict=True):
        back = there[::-1]
        views[there] = pair.selectExpr(f"link AS link_{there}", f"source_row AS {there[0]}", f"target_row AS {back[0]}")
        views[back] = views[there].withColumnRenamed(f"link_{there}", f"link_{back}")
    return views


def _around(views: dict[str, DataFrame], centre: str, third: str, *, closed: bool = False) -> DataFrame:
    """Loops seen from a centre x - y whose ends both have a link into the third cloud; closed ones only if asked."""
    from pyspark.sql import functions as F

    x, y = centre[0], centre[1]
    first = views[x + third].withColumnRenamed(third, "one")
    last = views[y + third].withColumnRenamed(third, "other")
    rows = views[centre].join(first, x).join(last, y)
    if not closed:
        rows = rows.where("one != other")
    kind = F.when(F.col("one") == F.col("other"), F.lit(CLOSED)).otherwise(F.lit(BROKEN))
    ends = [F.col(f"link_{x}{third}").alias("first"), F.col(f"link_{centre}").alias("centre")]
    return rows.select(kind.alias("kind"), *ends, F.col(f"link_{y}{third}").alias("last"))


def _open(views: dict[str, DataFrame], middle: str, ends: str) -> DataFrame:
    """Chains over a middle point neither end of which has a link into the other's cloud."""
    from pyspark.sql import functions as F

    x, z = ends[0], ends[1]
    rows = views[middle + x].join(views[middle + z], middle)
    rows = rows.join(views[ends].select(x), x, "left_anti").join(views[ends].select(z), z, "left_anti")
    columns = [F.lit(OPEN).alias("kind"), F.col(f"link_{middle}{x}").alias("first")]
    return rows.select(*columns, F.col(f"link_{middle}{z}").alias("centre"), F.lit(None).cast("bigint").alias("last"))


def judged_links(linked: DataFrame, verdicts: DataFrame) -> DataFrame:
    """Links by id with what loops make of them: new confidence, divided by the copies as before; seeds stay at 1.

    linked: rows of `point_links`. verdicts: source_row, target_row, point_after, closed, broken, open.
    """
    from pyspark.sql import functions as F

    after = F.when(F.col("is_seed"), F.lit(1.0)).otherwise(F.col("point_after") / _copies())
    rows = linked.withColumnRenamed("confidence", "confidence_before").join(verdicts, ["source_row", "target_row"])
    return rows.withColumn("confidence", after)


def tally(links: DataFrame) -> DataFrame:
    """Figures by pair of clouds. links: schemas.JUDGED_LINKS."""
    from pyspark.sql import functions as F

    counts = [F.sum((F.col(kind) > 0).cast("bigint")).alias(kind) for kind in (CLOSED, BROKEN, OPEN)]
    # Sums of whole numbers: those of floats depend on the order in which Spark adds.
    sums = [F.sum(F.round(F.col(c) * 1_000_000_000).cast("bigint")) for c in ("confidence_before", "confidence")]
    means = [s / F.count("*") / 1e9 for s in sums]
    return links.groupBy("source_cloud", "target_cloud").agg(
        F.count("*").alias("links"), *counts, means[0].alias("confidence_before"), means[1].alias("confidence")
    )


def suggested_ids(suggested: DataFrame, ids: DataFrame) -> DataFrame:
    """Suggested pairs of points as pairs of ids, in sorted order as far as both sides reach (as in stages/links.py).

    suggested: source_cloud, source_row, target_cloud, target_row, confidence (of the points), through. ids: cloud, id,
    row, copies. The confidence is divided by the number of copies. Columns schemas.SUGGESTED.
    """
    from pyspark.sql import functions as F

    rows = suggested
    for side in ("source", "target"):
        chosen = rows.select(f"{side}_cloud", f"{side}_row").distinct()
        mine = ids.toDF(f"{side}_cloud", f"{side}_id", f"{side}_row", f"{side}_copies")
        mine = _numbered(mine.join(chosen, [f"{side}_cloud", f"{side}_row"], "left_semi"), side)
        rows = rows.join(mine, [f"{side}_cloud", f"{side}_row", *(["position"] if side == "target" else [])])
    return rows.withColumn("confidence", F.col("confidence") / _copies())


def _numbered(ids: DataFrame, side: str) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    within = Window.partitionBy(f"{side}_cloud", f"{side}_row").orderBy(f"{side}_id")
    return ids.withColumn("position", F.row_number().over(within))


def group_ids(members: DataFrame, ids: DataFrame) -> DataFrame:
    """All ids of the points of groups. members: group, cloud, row. ids: cloud, id, row, copies."""
    return members.join(ids, ["cloud", "row"]).select("group", "cloud", "id")


def _copies() -> Column:
    from pyspark.sql import functions as F

    return F.greatest("source_copies", "target_copies")
