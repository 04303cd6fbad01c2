"""The `judged` table of a consensus run (schemas.JUDGED_PAIRS): a round's verdicts as rows, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veclink import schemas, tables
from veclink.candidates import FEATURES
from veclink.errors import InputError
from veclink.kernels.judging import Decoys, Evidence, Pairs
from veclink.kernels.views import contains
from veclink.runs.loop import Iteration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


def rows_of(found: Evidence, confidence: np.ndarray, anchors: np.ndarray) -> pa.Table:
    """One round's verdicts. confidence: (p,) of its pairs. anchors: (a, 2) rows promoted to the next round."""
    parts = [_with_role(found.pairs, confidence, schemas.CANDIDATE)]
    for pairs, role in ((found.decoys.no_target, schemas.NO_TARGET), (found.decoys.no_source, schemas.NO_SOURCE)):
        parts.append(_with_role(pairs, np.zeros(len(pairs)), role))
    candidates = np.stack([found.pairs.source, found.pairs.target], axis=1)
    flags = [contains(anchors, candidates), *[np.zeros(len(p), bool) for p in parts[1:]]]
    carried = anchors[~contains(candidates, anchors)]
    kept = {"source_row": carried[:, 0], "target_row": carried[:, 1], "confidence": np.zeros(len(carried))}
    parts.append(pa.table({**kept, "role": pa.array([schemas.CARRIED] * len(carried), pa.string())}))
    flags.append(np.ones(len(carried), bool))
    table = pa.concat_tables(parts, promote_options="default")
    return table.append_column("promoted", pa.array(np.concatenate(flags)))


def _with_role(pairs: Pairs, confidence: np.ndarray, role: str) -> pa.Table:
    return columns(pairs, confidence).append_column("role", pa.array([role] * len(pairs), pa.string()))


def read(rows: pa.Table, asked: np.ndarray) -> tuple[Evidence, np.ndarray]:
    """One round's evidence, and its promoted pairs as (a, 2) rows in order. asked: its own anchors, likewise."""
    pairs, no_target, no_source = (_of_role(rows, r) for r in (schemas.CANDIDATE, schemas.NO_TARGET, schemas.NO_SOURCE))
    promoted = rows.filter(pc.field("promoted")).sort_by([(c, "ascending") for c in schemas.ROWS])
    anchors = np.stack([promoted[c].to_numpy() for c in schemas.ROWS], axis=1)
    return Evidence(pairs, Decoys(no_target, no_source, asked)), anchors


def _of_role(rows: pa.Table, role: str) -> Pairs:
    mine = rows.filter(pc.field("role") == role)
    features = np.stack([mine[name].to_numpy() for name in FEATURES], axis=1)
    votes, chances = (mine[c].to_numpy().astype(np.int64) for c in ("votes", "opportunities"))
    return Pairs(mine["source_row"].to_numpy(), mine["target_row"].to_numpy(), votes, chances, features)


def rounds(spark: SparkSession, out: str, history: Sequence[Iteration]) -> Iterator[tuple[int, pa.Table]]:
    """The rows of the last rounds by their number; history: what `iterations` says of them.

    Raises InputError if the two tables do not tell of the same rounds: they were changed from outside.
    """
    table = tables.read(spark, f"{out}/judged").where(f"round >= {history[0].round}").toArrow()
    for done in history:
        rows = table.filter(pc.field("round") == done.round)
        found = rows.filter(pc.field("role") == schemas.CANDIDATE).num_rows
        if found != done.pairs_proposed:
            raise InputError(
                f"the tables judged and iterations of {out} do not tell of the same rounds",
                got=f"{found} candidates of round {done.round}, {done.pairs_proposed} expected",
                do="Restore both, or run again with --overwrite",
            )
        yield done.round, rows.sort_by([(c, "ascending") for c in schemas.ROWS])


def dropped_seeds(spark: SparkSession, out: str) -> list[int]:
    """Positions of the seeds that the audit of a run has dropped."""
    if not tables.is_delta(spark, f"{out}/seed_audit"):
        return []
    return tables.read(spark, f"{out}/seed_audit").where("dropped").toArrow()["seed"].to_pylist()  # type: ignore[no-any-return]


def promoted_in(spark: SparkSession, out: str, number: int) -> pa.Table:
    """The pairs that a round left as anchors, seeds not among them."""
    judged = tables.read(spark, f"{out}/judged").where(f"round = {number} AND promoted")
    return judged.select(*schemas.ROWS).toArrow()
