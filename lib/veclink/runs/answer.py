"""What a link run leaves behind: the `links` table, and the report that is printed and kept in `run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from veclink import schemas, tables
from veclink.runs.prepare import PreparedCloud
from veclink.runs.rounds import Rounds
from veclink.runs.seeds import Seeds
from veclink.stages.links import link_ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS = ["source_row", "target_row", "confidence", "votes", "opportunities", "score", "margin"]


def write_links(
    spark: SparkSession, out: str, folders: tuple[str, str], promoted: pa.Table | None, seeds: Seeds
) -> None:
    """Write `out/links` from the pairs of points promoted last; None: the seeds alone."""
    rows = _seed_points(seeds.anchors.seed_rows if promoted is not None else np.empty((0, 2), np.int64))
    if promoted is not None:
        # The seeds' own points are among them: other ids that share their vectors are linked too.
        rows = pa.concat_tables([promoted.select(_COLUMNS), rows.cast(promoted.select(_COLUMNS).schema)])
    given = pa.table(
        {
            "source_id": pa.array([a for a, _ in seeds.pairs], pa.string()),
            "target_id": pa.array([b for _, b in seeds.pairs], pa.string()),
        }
    )
    ids = [tables.read(spark, f"{folder}/ids") for folder in folders]
    links = link_ids(spark.createDataFrame(rows), ids[0], ids[1], spark.createDataFrame(given))
    tables.replace(links.selectExpr(*schemas.casts(schemas.LINKS)), f"{out}/links")


def _seed_points(seed_rows: np.ndarray) -> pa.Table:
    n = len(seed_rows)
    kinds = dict.fromkeys(_COLUMNS, pa.float64()) | dict.fromkeys(["votes", "opportunities"], pa.int64())
    values = {
        "source_row": pa.array(seed_rows[:, 0], pa.int64()),
        "target_row": pa.array(seed_rows[:, 1], pa.int64()),
        "confidence": pa.array(np.ones(n)),
    }
    return pa.table({name: values.get(name, pa.nulls(n, kinds[name])) for name in _COLUMNS})


def outcome(rounds: Rounds, recovery: float, floor: float) -> dict[str, Any]:
    """Whether the run took off, why it ended, and how many rounds and views it took."""
    if recovery < floor:
        reason = (
            f"the run did not take off: with one half of its pairs as anchors, {recovery:.2f} of the other half are "
            f"found again, below link.takeoff_recovery = {floor}"
        )
    else:
        reason = "the links stand still" if rounds.settled else "all rounds are used up"
    return {
        "taken_off": recovery >= floor,
        "exit_reason": reason,
        "rounds": len(rounds.history),
        "views": sum(i.views for i in rounds.history),
    }


def counts_and_estimates(spark: SparkSession, out: str, seeds: Seeds, recovery: float) -> dict[str, Any]:
    """Links and seeds, and what the run says of its own quality without a truth."""
    found = tables.read(spark, f"{out}/links").where("NOT is_seed")
    table = found.select("source_id", "target_id", "confidence").toArrow()
    pairs = set(zip(table["source_id"].to_pylist(), table["target_id"].to_pylist(), strict=True))
    confidence = table["confidence"].to_numpy()
    return {
        "links": len(pairs),
        "seeds": len(seeds.anchors.seed_source),
        "estimates": {
            "mean_confidence": float(np.mean(confidence)) if len(confidence) else None,
            "recovery": recovery,
            "held_back": len(seeds.held_back),
            "held_back_recovered": sum(p in pairs for p in seeds.held_back),
        },
    }


def cloud_counts(cloud: PreparedCloud) -> dict[str, Any]:
    """What was read of one cloud."""
    return {
        "vectors": cloud.rows_kept,
        "dim": cloud.dim,
        "rejected": cloud.rows_rejected,
        "duplicates": cloud.duplicate_rows,
    }
