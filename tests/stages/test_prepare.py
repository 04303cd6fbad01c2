"""Prepare's steps on DataFrames: column types, verdicts, row numbers whatever the partitioning."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from veclink import arrow_cols, schemas
from veclink.errors import InputError
from veclink.settings import PrepareSettings
from veclink.stages import prepare as stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DIM = 5


def raw(spark: SparkSession) -> DataFrame:
    """60 ids in no order, ids 50 to 59 repeating the vectors of 40 to 49; two bad rows, a double id, a null id."""
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((60, DIM)).astype(np.float32)
    vectors[50:] = vectors[40:50]
    ids: list[str | None] = [f"id{i:02d}" for i in range(60)]
    rows: list[list[float] | None] = [*vectors.tolist(), [0.0] * DIM, None, [1.0] * DIM, [1.0] * DIM, [2.0] * DIM]
    ids += ["bad0", "bad1", "twice", "twice", None]
    order = rng.permutation(len(ids))
    encoders = ["a"] * len(ids)
    return spark.createDataFrame(
        pa.table(
            {
                "id": pa.array([ids[i] for i in order], pa.string()),
                "encoder": pa.array(encoders, pa.string()),
                "vector": pa.array([rows[i] for i in order], pa.list_(pa.float32())),
            }
        )
    )


def check_once(rows: DataFrame) -> DataFrame:
    """Checked rows held in memory; a run writes them down at this place, for the same reason."""
    return rows.sparkSession.createDataFrame(stage.check(rows, DIM).toArrow(), schemas.CHECKED)


def results(checked: DataFrame) -> tuple[list[tuple], np.ndarray]:
    """Every verdict and row number, sorted by what it says, and the points in row order."""
    judged = stage.judge(checked, None)
    points = stage.points(checked, judged, None, 1).toArrow()
    assert points.column("row").to_pylist() == list(range(points.num_rows))
    return sorted(map(tuple, judged.collect()), key=str), arrow_cols.matrix(points.column("vector"), DIM)


def test_row_numbers_depend_on_the_ids_alone(spark: SparkSession) -> None:
    rows = raw(spark)
    verdicts, points = results(check_once(rows.coalesce(1)))
    # The representatives are id00 to id49 in this order; id50 repeats id40.
    want = [(f"id{i:02d}", i if i < 50 else i - 10, 1 if i < 40 else 2) for i in range(60)]
    numbered = [(name, row, copies) for name, _, _, _, row, copies, _ in verdicts if row is not None]
    assert sorted(numbered) == want
    assert points.shape == (50, DIM)
    verdicts_again, points_again = results(check_once(rows.repartition(3)).repartition(7))
    assert verdicts_again == verdicts
    np.testing.assert_array_equal(points_again, points)


def test_files_of_points_hold_ranges_of_rows(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    checked = check_once(raw(spark))
    points = stage.points(checked, stage.judge(checked, None), None, 3)
    found = points.select(F.spark_partition_id(), "row").collect()
    parts = {p: [row for part, row in found if part == p] for p in {part for part, _ in found}}
    assert len(parts) == 3
    assert [row for p in sorted(parts) for row in parts[p]] == list(range(50))


def test_verdicts_say_what_is_wrong_with_the_row_before_its_vector(spark: SparkSession) -> None:
    rows = [
        (None, "b", [0.0, 0.0]),
        ("x", "b", [1.0, 0.0]),  # another encoder's row does not make the id of ours a duplicate
        ("x", "a", [1.0, 0.0]),
        ("y", "a", None),
        ("y", "a", [1.0, 0.0]),
        ("z", None, [1.0, 0.0]),
        ("w", "a", [1.0]),
    ]
    frame = spark.createDataFrame(rows, "id STRING, encoder STRING, vector ARRAY<DOUBLE>").coalesce(1)
    judged = stage.judge(stage.check(frame, 2), "a").collect()
    assert sorted((str(r["id"]), str(r["reason"]), str(r["detail"])) for r in judged) == [
        ("None", "null_id", "id is null"),
        ("w", "wrong_length", "length 1, expected 2"),
        ("x", "None", "None"),
        ("x", "other_encoder", "encoder b, expected a"),
        ("y", "duplicate_id", "2 rows have this id"),
        ("y", "duplicate_id", "2 rows have this id"),
        ("z", "other_encoder", "encoder null, expected a"),
    ]


@pytest.mark.parametrize("kind", ["tinyint", "smallint", "int", "bigint", "float", "double", "decimal(10,2)"])
def test_every_number_type_is_taken(spark: SparkSession, kind: str) -> None:
    value = Decimal(3) if "decimal" in kind else 3.0 if kind in ("float", "double") else 3
    rows = spark.createDataFrame([(7, [value, value])], f"key BIGINT, `a.b` ARRAY<{kind}>")
    got = stage.select(rows, PrepareSettings(id_column="key", vector_column="a.b"), "here").first()
    assert got is not None
    assert (got["id"], got["encoder"], got["vector"]) == ("7", None, [3.0, 3.0])


def test_integers_that_no_double_holds_are_taken(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("a", [2**53 + 1, 0])], "id STRING, vector ARRAY<BIGINT>")
    checked = stage.check(stage.select(rows, PrepareSettings(), "here"), 2).first()
    assert checked is not None
    assert checked["vector"] == [1.0, 0.0]


def test_spark_ml_vectors_are_taken(spark: SparkSession) -> None:
    from pyspark.ml.linalg import Vectors

    rows = spark.createDataFrame(
        [("a", Vectors.sparse(3, {1: 2.0})), ("b", Vectors.dense([1, 2, 3]))], ["id", "vector"]
    )
    got = stage.select(rows, PrepareSettings(), "here").collect()
    assert [r["vector"] for r in got] == [[0.0, 2.0, 0.0], [1.0, 2.0, 3.0]]


@pytest.mark.parametrize("kind", ["STRING", "DOUBLE", "ARRAY<STRING>", "ARRAY<ARRAY<FLOAT>>", "ARRAY<BOOLEAN>"])
def test_a_vector_column_of_another_type_is_refused(spark: SparkSession, kind: str) -> None:
    rows = spark.createDataFrame([], f"id STRING, vector {kind}")
    with pytest.raises(InputError, match=r"does not hold vectors .*vector_column.*Got type .*Give a column") as error:
        stage.select(rows, PrepareSettings(), "here")
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("setting", "name"), [("id_column", "ids"), ("vector_column", "vectors"), ("encoder_column", "encodr")]
)
def test_a_missing_column_is_refused_naming_the_nearest(spark: SparkSession, setting: str, name: str) -> None:
    rows = spark.createDataFrame([], "id STRING, vector ARRAY<FLOAT>, encoder STRING")
    near = {"ids": "id", "vectors": "vector", "encodr": "encoder"}[name]
    with pytest.raises(InputError, match=f"no column {name} .*Got columns id, vector, encoder.*Did you mean {near}"):
        stage.select(rows, PrepareSettings.model_validate({setting: name}), "here")
