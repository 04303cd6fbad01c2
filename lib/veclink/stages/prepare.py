"""Prepare: raw rows in, points, ids and rejects out.

    raw -> profile                                  which length, which encoder, how many rows
    raw -> check -> checked rows, written once -> judge -> verdicts and row numbers, written once -> rejects, ids
                                              `-----------------------------------------------`---> points

Every step is a function of its inputs alone: no result depends on the order or the partitioning of the rows.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, NumericType

from veclink import arrow_cols, schemas
from veclink.errors import InputError
from veclink.kernels import rows as kernel
from veclink.settings import PrepareSettings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NULL_ID = "null_id"
DUPLICATE_ID = "duplicate_id"
OTHER_ENCODER = "other_encoder"


def select(rows: DataFrame, settings: PrepareSettings, location: str) -> DataFrame:
    """The columns that count, under our names: (id STRING, encoder STRING, vector ARRAY<FLOAT|DOUBLE>).

    Raises InputError if a column is missing or the vector column is not one of numbers; `location` is for the message.
    """
    wanted = {"id_column": settings.id_column, "vector_column": settings.vector_column}
    if settings.encoder_column is not None:
        wanted["encoder_column"] = settings.encoder_column
    for setting, name in wanted.items():
        if name not in rows.columns:
            near = difflib.get_close_matches(name, rows.columns, 1, 0.5)
            hint = f"Did you mean {near[0]}? Set" if near else "Set"
            raise InputError(
                f"{location} has no column {name} (setting prepare.{setting})",
                got=f"columns {', '.join(rows.columns)}",
                do=f"{hint} prepare.{setting}",
            )
    encoder = F.lit(None) if settings.encoder_column is None else F.col(_quoted(settings.encoder_column))
    return rows.select(
        F.col(_quoted(settings.id_column)).cast("string").alias("id"),
        encoder.cast("string").alias("encoder"),
        _numbers(settings.vector_column, rows.schema[settings.vector_column].dataType, location).alias("vector"),
    )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _numbers(name: str, kind: DataType, location: str) -> Column:
    """A vector column as an array of floats or doubles; the checks need every element as it is, so nothing narrows."""
    vector = F.col(_quoted(name))
    if kind.simpleString() == "vector":  # Spark ML's
        from pyspark.ml.functions import vector_to_array

        return vector_to_array(vector)
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, FloatType | DoubleType):
        return vector
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, NumericType):
        return vector.cast("array<double>")
    raise InputError(
        f"column {name} of {location} does not hold vectors (setting prepare.vector_column)",
        got=f"type {kind.simpleString()}",
        do="Give a column of type array<float> (or of another number type)",
    )


def profile(raw: DataFrame) -> DataFrame:
    """How many rows there are of each encoder and vector length: (encoder, length, rows). length is null for null."""
    length = F.when(F.col("vector").isNotNull(), F.size("vector"))
    return raw.groupBy("encoder", length.alias("length")).agg(F.count(F.lit(1)).alias("rows"))


def check(raw: DataFrame, dim: int) -> DataFrame:
    """Judge and normalise every vector: CHECKED. The reason is of the vector alone; ids come in `judge`."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in arrow_cols.parts(batch, "vector"):
                yield _check_batch(part, dim)

    return raw.mapInArrow(run, schemas.CHECKED)


def _check_batch(batch: pa.RecordBatch, dim: int) -> pa.RecordBatch:
    checked = kernel.check(kernel.Ragged(*arrow_cols.ragged(batch.column("vector"))), dim)
    good = checked.good
    digests = iter(kernel.digests(checked.unit))
    return pa.RecordBatch.from_pydict(
        {
            "id": batch.column("id"),
            "encoder": batch.column("encoder"),
            "reason": pa.array(checked.reasons, pa.string()),
            "detail": pa.array(checked.details, pa.string()),
            "norm": pa.array(checked.norms, pa.float64(), mask=~good),
            "digest": pa.array([next(digests) if ok else None for ok in good], pa.binary()),
            "vector": arrow_cols.column(checked.unit, good),
        }
    )


def judge(checked: DataFrame, encoder: str | None) -> DataFrame:
    """The final word on every row, and the row numbers of the accepted ones: JUDGED.

    encoder: the only encoder whose rows are accepted; None accepts all.
    Rows with the same vector are one point, represented by the smallest id. Row numbers are the places of the
    representatives in their sorted order (by code point), from 0. Only ids and digests travel through that sort, which
    runs in one task.
    """
    judged = _verdicts(checked, encoder)
    groups = (
        judged.where(F.col("digest").isNotNull())
        .groupBy("digest")
        .agg(F.min("id").alias("representative"), F.count(F.lit(1)).cast("int").alias("copies"))
    )
    place = F.row_number().over(Window.orderBy("representative")).cast("bigint") - 1
    numbered = groups.select("digest", "representative", "copies", place.alias("row"))
    first = F.coalesce(F.col("id") == F.col("representative"), F.lit(False))
    return judged.join(numbered, "digest", "left").select(
        "id", "reason", "detail", "norm", "row", "copies", first.alias("first")
    )


def _verdicts(checked: DataFrame, encoder: str | None) -> DataFrame:
    """(id, reason, detail, norm, digest) of every row; the digest is null where there is a reason.

    The rows of `encoder` alone count when ids are compared. A null id comes before another encoder, that before a
    duplicate id, that before a bad vector: what is wrong with the row as a whole is said first.
    """
    is_other = ~_is_ours(encoder)
    same_id = F.count(F.lit(1)).over(Window.partitionBy("id", is_other))
    null_id, duplicate = F.col("id").isNull(), same_id > 1
    found = F.coalesce(F.col("encoder"), F.lit("null"))
    reason = F.when(null_id, NULL_ID).when(is_other, OTHER_ENCODER).when(duplicate, DUPLICATE_ID)
    detail = (
        F.when(null_id, "id is null")
        .when(is_other, F.concat(F.lit("encoder "), found, F.lit(f", expected {encoder}")))
        .when(duplicate, F.concat(same_id.cast("string"), F.lit(" rows have this id")))
    )
    said = checked.withColumns(
        {"reason": reason.otherwise(F.col("reason")), "detail": detail.otherwise(F.col("detail"))}
    )
    return said.select(
        "id", "reason", "detail", "norm", F.when(F.col("reason").isNull(), F.col("digest")).alias("digest")
    )


def _is_ours(encoder: str | None) -> Column:
    return F.lit(True) if encoder is None else F.col("encoder").eqNullSafe(F.lit(encoder))


def rejects(judged: DataFrame) -> DataFrame:
    """The refused rows: REJECTS."""
    return judged.where(F.col("reason").isNotNull()).select("id", "reason", "detail")


def tally(judged: DataFrame) -> DataFrame:
    """Rows, points and norms by reason (null: accepted): (reason, rows, points, norm_min, norm_sum, norm_max)."""
    return judged.groupBy("reason").agg(
        F.count(F.lit(1)).alias("rows"),
        F.count_if("first").alias("points"),
        F.min("norm").alias("norm_min"),
        F.sum("norm").alias("norm_sum"),
        F.max("norm").alias("norm_max"),
    )


def ids(judged: DataFrame) -> DataFrame:
    """The accepted rows: IDS."""
    return judged.where(F.col("reason").isNull()).select("id", "row", "copies")


def points(checked: DataFrame, judged: DataFrame, encoder: str | None, files: int) -> DataFrame:
    """One row per distinct vector, sorted by row number, in `files` partitions: POINTS.

    The id of a representative is unique among the rows of `encoder`, so the join finds it once.
    """
    first = judged.where("first").select("id", "row")
    joined = _good(checked, encoder).select("id", "vector").join(first, "id").select("row", "vector")
    return joined.repartitionByRange(files, "row").sortWithinPartitions("row")


def sample(checked: DataFrame, encoder: str | None, share: float) -> DataFrame:
    """A share (0 to 1) of the distinct good vectors, the same ones every time: (digest, vector).

    A digest is as good as a random number. Rows with equal vectors come together.
    """
    if share < 1:
        bound = int(share * 2**32).to_bytes(4, "big")
        checked = checked.where(F.col("digest") < F.lit(bound))
    return _good(checked, encoder).select("digest", "vector")


def _good(checked: DataFrame, encoder: str | None) -> DataFrame:
    return checked.where(_is_ours(encoder) & F.col("reason").isNull())
