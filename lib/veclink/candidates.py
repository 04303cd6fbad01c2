"""What views say of pairs, as rows of schemas.CANDIDATES: made by every way of comparing, summed by pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veclink import schemas
from veclink.kernels.csls import Compared, Matches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Floats = NDArray[np.floating]
Rows = NDArray[np.int64]

# Scores are summed as whole numbers: float sums would depend on the order in which Spark adds them.
NANO = 1e9

# Columns of schemas.CANDIDATES that name a pair, and those that are summed.
CANDIDATE_KEYS = ("role", *schemas.ROWS)
CANDIDATE_SUMS = tuple(schemas.columns(schemas.CANDIDATES)[len(CANDIDATE_KEYS) :])

# What is known of a match beside its rows, as it stands in schemas.CANDIDATES.
FEATURES = ("score", "source_lead", "target_lead", "source_density", "target_density")


def of_view(compared: Compared, anchors: Rows, held: NDArray[np.bool_] | None) -> pa.RecordBatch:
    """What one view says (columns schemas.CANDIDATES), a vote a pair.

    anchors: (a, 2) row pairs. held: (n,) source rows that the view holds: it judges the others, and asks their anchors
    without the partner. None: it judges all rows, and there are no decoys.
    """
    found = compared.matches()
    if held is None:
        return _votes({schemas.CANDIDATE: found})
    asked = anchors[~held[anchors[:, 0]]]
    return _votes(
        {
            schemas.CANDIDATE: found.take(~held[found.source]),
            schemas.NO_TARGET: compared.bereft(asked, 0),
            schemas.NO_SOURCE: compared.bereft(asked, 1),
        }
    )


def summed(rows: DataFrame) -> DataFrame:
    """Views' rows summed by pair."""
    from pyspark.sql import functions as F

    return rows.groupBy(*CANDIDATE_KEYS).agg(*[F.sum(c).cast("bigint").alias(c) for c in CANDIDATE_SUMS])


def _votes(found: dict[str, Matches]) -> pa.RecordBatch:
    """Matches by role, a vote each."""
    columns: dict[str, list[pa.Array]] = {name: [] for name in (*CANDIDATE_KEYS, *CANDIDATE_SUMS)}
    for role, matches in found.items():
        count = len(matches.source)
        values = {
            "role": pa.array([role] * count, pa.string()),
            "source_row": pa.array(matches.source, pa.int64()),
            "target_row": pa.array(matches.target, pa.int64()),
            "votes": pa.array(np.ones(count, np.int64)),
        }
        values |= {f"{name}_nano": pa.array(nano(getattr(matches, name))) for name in FEATURES}
        for name, column in values.items():
            columns[name].append(column)
    return pa.RecordBatch.from_pydict({name: pa.concat_arrays(parts) for name, parts in columns.items()})


def nano(values: Floats) -> Rows:
    """Scores in whole units of 1e-9."""
    return np.rint(values.astype(np.float64) * NANO).astype(np.int64)
