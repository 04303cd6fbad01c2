"""What a link run leaves behind: the `links` table, and the report that is printed and kept in `run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from veclink import schemas, tables
from veclink.runs.loop import Answer, Loop
from veclink.runs.prepare import PreparedCloud
from veclink.runs.seeds import Seeds
from veclink.stages.links import link_ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WHOLE = ["votes", "opportunities"]
_FEATURES = ["source_lead", "target_lead", "source_density", "target_density"]
_COLUMNS = ["source_row", "target_row", "confidence", *_WHOLE, "score", "margin", *_FEATURES]


def write_links(
    spark: SparkSession, out: str, folders: tuple[str, str], promoted: pa.Table | None, seeds: Seeds
) -> None:
    """Write `out/links` from the pairs of points promoted last; None: the seeds alone."""
    rows = _seed_points(seeds.anchors.seed_rows if promoted is not None else np.empty((0, 2), np.int64))
    if promoted is not None:
        # The seeds' own points are among them: other ids that share their vectors are linked too.
        rows = pa.concat_tables([_complete(promoted), rows])
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
    pairs = {"source_row": seed_rows[:, 0], "target_row": seed_rows[:, 1], "confidence": np.ones(len(seed_rows))}
    return _complete(pa.table(pairs))


def _complete(pairs: pa.Table) -> pa.Table:
    """Pairs with all columns of _COLUMNS in their types; those they lack are null."""
    whole = {*schemas.ROWS, *_WHOLE}
    kinds = {name: pa.int64() if name in whole else pa.float64() for name in _COLUMNS}
    known = set(pairs.column_names)
    return pa.table({n: pairs[n].cast(k) if n in known else pa.nulls(len(pairs), k) for n, k in kinds.items()})


def outcome(loop: Loop, answer: Answer) -> dict[str, Any]:
    """Whether the run took off, why it ended, and how many rounds and views it took."""
    recovery = answer.recovery
    if loop.stranded:
        reason = "the run did not take off: its starts agree on too little to go on with"
    elif not answer.taken_off and recovery.pairs is None:
        reason = "the run did not take off: too few pairs are likely to be right for a test of them"
    elif not answer.taken_off:
        seeds = "" if recovery.seeds is None else f" and {recovery.seeds:.2f} of the seeds"
        better = recovery.ahead
        ahead = "" if better is None else f", and a seed is better than a pair in {better:.2f} of cases"
        reason = (
            f"the run did not take off: with a part of its pairs as anchors, {recovery.pairs:.2f} of the others{seeds} "
            f"are found again{ahead}; that is too few, or too much apart ({loop.takeoff_limits})"
        )
    else:
        reason = "the links stand still" if loop.settled else "all rounds are used up"
        if not len(answer.promoted):
            reason += ", but no pair is as sure as consensus.min_confidence and target_precision want it"
    return {
        "taken_off": answer.taken_off,
        "exit_reason": reason,
        "rounds": len(loop.history),
        "views": sum(i.views for i in loop.history),
    }


def counts_and_estimates(spark: SparkSession, out: str, seeds: Seeds, answer: Answer) -> dict[str, Any]:
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
            "recovery": answer.recovery.pairs,
            "seed_recovery": answer.recovery.seeds,
            "seeds_ahead": answer.recovery.ahead,
            **answer.estimates,
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
