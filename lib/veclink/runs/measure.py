"""Judge a finished link run: with the truth, or without it by the seeds that were held back."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from veclink import tables
from veclink.errors import GateNotMet, InputError
from veclink.kernels.judge import expected_calibration_error, score
from veclink.runs import record as records
from veclink.runs.judged import dropped_seeds, promoted_in
from veclink.runs.loop import row_pairs, stored_iterations
from veclink.runs.rounds import promote, standing
from veclink.runs.seeds import read_pairs
from veclink.settings import CONSENSUS, Settings
from veclink.stages import measure as measure_stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def measure(spark: SparkSession, links: str, truth: str | None, settings: Settings) -> dict[str, Any]:
    """Precision, recall, F1, calibration and a row per round; without truth, what the run says of itself.

    `check_floors` judges the result.

    links: the output folder of a link run. truth: table of all true pairs (source_id, target_id), seeds included.
    Raises InputError if there is no finished run in the folder, if the truth has no pair of its clouds, or if there is
    a floor and no truth to compare with.
    """
    record = records.read(spark, links)
    if record is None or record.status == records.RUNNING or not record.inputs.source:
        state = "nothing" if record is None else "a run that has not ended"
        if record is not None and not record.inputs.source:
            state = "the result of `veclink cycles`"
        raise InputError(f"{links} holds no finished link run", got=state, do="Run `veclink link --out` to its end")
    if truth is None:
        if _floors(settings):
            raise InputError("the floors of measure.* need a truth", do="Give --truth, or leave the floors out")
        return {"run_key": record.run_key, "estimates": record.report["estimates"]}
    pairs = read_pairs(spark, truth, "truth")
    table = pa.table({"source_id": [a for a, _ in pairs], "target_id": [b for _, b in pairs]})
    true = spark.createDataFrame(table)
    found = tables.read(spark, f"{links}/links")
    result = {"run_key": record.run_key, **_judge(found, true, len(pairs), settings.measure.reliability_bins)}
    partners = _partners(spark, links, record, true)
    result["truth_outside"] = len(pairs) - len(partners)
    result["rounds"] = _rounds(spark, links, record, set(partners))
    result["estimates"] = record.report["estimates"]
    return result


def check_floors(result: dict[str, Any], settings: Settings) -> None:
    """Raises GateNotMet if a floor of `measure.*` is not reached by a result of `measure`."""
    for name, floor in _floors(settings).items():
        if result[name] < floor:
            raise GateNotMet(f"{name} is below the floor measure.{name}_floor = {floor}", got=f"{result[name]:.4f}")


def _floors(settings: Settings) -> dict[str, float]:
    floors = {"precision": settings.measure.precision_floor, "recall": settings.measure.recall_floor}
    return {name: floor for name, floor in floors.items() if floor is not None}


def _judge(found: DataFrame, true: DataFrame, true_pairs: int, bins: int) -> dict[str, Any]:
    rows = measure_stage.judged(found, true)
    table = measure_stage.reliability(rows, bins).toArrow()
    count, confidence, correct = (table[c].to_numpy().astype(np.float64) for c in ("links", "confidence", "correct"))
    # A seed whose pair is not in the truth takes nothing away from what was to be found.
    seeds = found.where("is_seed").join(true, ["source_id", "target_id"]).count()
    links, right = int(count.sum()), int(correct.sum())
    return {
        "links": links,
        "correct": right,
        "truth": true_pairs,
        "seeds_in_truth": seeds,
        **asdict(score(right, links, true_pairs - seeds)),
        "calibration_error": expected_calibration_error(count, confidence, correct) if links else None,
        "reliability": [
            {"bin": b, "links": int(n), "confidence": c / n, "correct": k / n}
            for b, n, c, k in zip(table["bin"].to_pylist(), count, confidence, correct, strict=True)
        ],
    }


def _partners(spark: SparkSession, out: str, record: records.Record, true: DataFrame) -> list[tuple[int, int]]:
    """Points of the true pairs whose ids are in the clouds."""
    ids = [tables.read(spark, f"{f}/ids").select("id", "row") for f in records.cloud_folders(out, record)]
    known = true.join(ids[0].toDF("source_id", "source_row"), "source_id")
    known = known.join(ids[1].toDF("target_id", "target_row"), "target_id")
    table = known.select("source_row", "target_row").toArrow()
    if not len(table):
        raise InputError(
            f"no pair of the truth is in the clouds of the run in {out}",
            got=", ".join(str(tuple(row)) for row in true.limit(3).collect()),
            do="Check its ids, that its columns are not swapped, and that it is the truth of this run's clouds",
        )
    return list(zip(table["source_row"].to_pylist(), table["target_row"].to_pylist(), strict=True))


def _rounds(
    spark: SparkSession, out: str, record: records.Record, partners: set[tuple[int, int]]
) -> list[dict[str, Any]]:
    """Every round's promoted pairs beside the truth, in points (exact duplicates are one point)."""
    seed_rows = np.array(record.inputs.seed_rows, dtype=np.int64).reshape(-1, 2)
    if len(seed_rows):  # those of outside anchors have none
        seed_rows = np.delete(seed_rows, dropped_seeds(spark, out), axis=0)
    wanted = len(partners) - sum((a, b) in partners for a, b in seed_rows.tolist())
    rows, views = [], []
    for done in stored_iterations(spark, out):
        views.append(done.views)
        if record.settings.link.preset == CONSENSUS:
            promoted = promoted_in(spark, out, done.round)
        else:
            pairs = standing(spark, out, views, record.settings.link)
            promoted = promote(pairs, done.threshold, seed_rows)
        right = sum(tuple(pair) in partners for pair in row_pairs(promoted).tolist())
        rows.append({**asdict(done), **asdict(score(right, promoted.num_rows, wanted))})
    return rows
