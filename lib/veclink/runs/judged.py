"""The `judged` table of a consensus run (schemas.JUDGED_PAIRS): a round's verdicts as rows, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from veclink import schemas, tables
from veclink.kernels.judging import Judged, Pairs
from veclink.stages.propose import FEATURES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CANDIDATE, DECOY, NO_TARGET, NO_SOURCE = "candidate", "decoy", "no_target", "no_source"


def columns(pairs: Pairs, confidence: np.ndarray) -> pa.Table:
    """Pairs with their evidence and confidence, a row each."""
    columns = {
        "source_row": pa.array(pairs.source, pa.int64()),
        "target_row": pa.array(pairs.target, pa.int64()),
        "confidence": pa.array(confidence, pa.float64()),
        "votes": pa.array(pairs.votes, pa.int64()),
        "opportunities": pa.array(pairs.opportunities, pa.int64()),
    }
    for i, name in enumerate(FEATURES):
        columns[name] = pa.array(np.ascontiguousarray(pairs.features[:, i]), pa.float64())
    return pa.table(columns)


def read(rows: pa.Table) -> tuple[Judged, np.ndarray, np.ndarray]:
    """One round's verdicts: what it judged, its promoted pairs as (p, 2) rows in order, and their confidence."""
    role = np.asarray(rows["role"].to_pylist())
    source, target = (rows[c].to_numpy() for c in schemas.ROWS)
    confidence, promoted = rows["confidence"].to_numpy(), rows["promoted"].to_numpy(zero_copy_only=False)
    judged, hidden = role == CANDIDATE, np.isin(role, (NO_TARGET, NO_SOURCE))
    features = np.stack([rows[name].to_numpy()[judged] for name in FEATURES], axis=1)
    votes, chances = (rows[c].to_numpy()[judged].astype(np.int64) for c in ("votes", "opportunities"))
    pairs = Pairs(source[judged], target[judged], votes, chances, features)
    order = np.lexsort((target[promoted], source[promoted]))
    anchors = np.stack([source[promoted], target[promoted]], axis=1)[order]
    return Judged(pairs, confidence[judged], source[hidden], target[hidden]), anchors, confidence[promoted][order]


def promoted_in(spark: SparkSession, out: str, number: int) -> pa.Table:
    """The pairs that a round left as anchors, seeds not among them."""
    judged = tables.read(spark, f"{out}/judged").where(f"round = {number} AND promoted")
    return judged.select(*schemas.ROWS).toArrow()
