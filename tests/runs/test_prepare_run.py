"""Whole prepare runs on real Spark and Delta: what is written, when nothing is, and what is refused."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clouds import unit
from veclink import arrow_cols, tables
from veclink.errors import InputError, RunLocked
from veclink.runs.prepare import PreparedCloud, open_cloud, prepare
from veclink.runtime import output_lock
from veclink.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DIM = 4
NAMES = ("points", "ids", "rejects", "statistics")
# One row for every kind of bad input that robustness asks for: reason -> vector.
BAD: dict[str, list[float | None] | None] = {
    "null_vector": None,
    "empty_vector": [],
    "wrong_length": [1.0, 2.0],
    "null_element": [1.0, None, 2.0, 3.0],
    "nan": [1.0, math.nan, 2.0, 3.0],
    "infinite": [1.0, math.inf, 2.0, 3.0],
    "out_of_range": [1e300, 1.0, 1.0, 1.0],
    "zero": [0.0, 0.0, 0.0, -0.0],
}
# Good rows that a careless norm loses.
EXTREME = {"big": [1e20, 1e20, 0.0, 0.0], "small": [1e-23, 2e-23, 0.0, 0.0], "tiny": [1e-6, 0.0, 0.0, 0.0]}


def settings(**prepare_settings: object) -> Settings:
    return Settings.model_validate({"prepare": prepare_settings})


def write(path: Path, ids: list, vectors: list, kind: pa.DataType | None = None) -> str:
    columns = {"id": pa.array(ids), "vector": pa.array(vectors, kind or pa.list_(pa.float64()))}
    pq.write_table(pa.table(columns), path)
    return str(path)


def versions(spark: SparkSession, out: str) -> list[int]:
    return [tables.delta_version(spark, f"{out}/{name}") for name in NAMES]


def content(folder: Path) -> dict[str, str]:
    """A hash of every file under a folder."""
    files = (p for p in sorted(folder.rglob("*")) if p.is_file())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.fixture(scope="module")
def dirty(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, PreparedCloud, dict[str, str]]:
    """A table with every fault in it, prepared; with it, what its folder held before."""
    folder = tmp_path_factory.mktemp("dirty")
    good = np.random.default_rng(0).standard_normal((30, DIM)).tolist()
    ids: list[str | None] = [f"good{i:02d}" for i in range(30)]
    ids += ["copy1", "copy2", "scaled", *EXTREME, *BAD, "twice", "twice", None]
    vectors = [*good, good[0], good[0], [4 * v for v in good[1]], *EXTREME.values(), *BAD.values(), *good[2:5]]
    location = write(folder / "rows.parquet", ids, vectors)
    before = content(folder)
    out = str(tmp_path_factory.mktemp("out") / "cloud")
    return location, prepare(spark, location, out, settings(reject_limit=0.5), "some-encoder"), before


def test_rejects_are_kept_and_counted(spark: SparkSession, dirty: tuple) -> None:
    location, cloud, _ = dirty
    rows = tables.read(spark, f"{cloud.folder}/rejects").collect()
    found = {(r["id"], r["reason"]) for r in rows}
    assert found == {(name, name) for name in BAD} | {("twice", "duplicate_id"), (None, "null_id")}
    assert all(r["detail"] for r in rows)
    assert (cloud.rows_kept, cloud.rows_rejected, len(rows)) == (36, 11, 11)
    stats = tables.read(spark, f"{cloud.folder}/statistics").first()
    assert stats is not None
    assert stats["rejects_by_reason"] == {**dict.fromkeys(BAD, 1), "duplicate_id": 2, "null_id": 1}
    assert (stats["rows_read"], stats["input"], stats["encoder"]) == (47, location, "some-encoder")
    assert stats["norm_min"] == pytest.approx(5**0.5 * 1e-23)
    assert stats["norm_max"] == pytest.approx(2**0.5 * 1e20)


def test_exact_duplicates_are_one_point_with_a_group_of_ids(spark: SparkSession, dirty: tuple) -> None:
    _, cloud, _ = dirty
    ids = {r["id"]: (r["row"], r["copies"]) for r in tables.read(spark, f"{cloud.folder}/ids").collect()}
    assert len(ids) == cloud.rows_kept
    assert ids["copy1"] == ids["copy2"] == ids["good00"]
    assert ids["good00"][1] == 3
    assert ids["scaled"] == ids["good01"]
    assert (cloud.points, cloud.duplicate_rows) == (33, 3)
    assert sorted({row for row, _ in ids.values()}) == list(range(33))
    # Numbered by the smallest id of each point: copy1 stands for good00.
    names = ("big", "copy1", "good01", "good02", "good29", "small", "tiny")
    assert [ids[name][0] for name in names] == [0, 1, 2, 3, 30, 31, 32]


def test_points_are_unit_float32_sorted_by_row_also_for_extreme_vectors(spark: SparkSession, dirty: tuple) -> None:
    _, cloud, _ = dirty
    table = tables.read(spark, f"{cloud.folder}/points").toArrow()
    assert table.schema.field("vector").type.value_type == pa.float32()
    assert table.column("row").to_pylist() == list(range(cloud.points))
    matrix = arrow_cols.matrix(table.column("vector"), cloud.dim)
    np.testing.assert_allclose(np.linalg.norm(matrix.astype(np.float64), axis=1), 1, atol=1e-6)
    want = [[2**-0.5, 2**-0.5, 0, 0], [5**-0.5, 2 * 5**-0.5, 0, 0], [1, 0, 0, 0]]
    np.testing.assert_allclose(matrix[[0, 31, 32]], want, atol=1e-7)


def test_second_call_rewrites_nothing_and_the_input_is_never_changed(spark: SparkSession, dirty: tuple) -> None:
    location, cloud, before = dirty
    held = content(Path(cloud.folder))
    assert prepare(spark, location, cloud.folder, settings(reject_limit=0.5), "some-encoder") == cloud
    assert prepare(spark, location, cloud.folder, settings(reject_limit=0.5)) == cloud  # the name is remembered
    assert content(Path(cloud.folder)) == {**held, ".lock": content(Path(cloud.folder))[".lock"]}
    assert versions(spark, cloud.folder) == [0, 0, 0, 0]
    assert content(Path(location).parent) == before
    assert open_cloud(spark, cloud.folder) == cloud
    assert not (Path(cloud.folder) / "veclink-scratch").exists()


def test_one_table_under_two_encoders_is_refused(spark: SparkSession, dirty: tuple) -> None:
    location, cloud, _ = dirty
    with pytest.raises(InputError, match=r"as encoder some-encoder.*Got encoder another.*Name it some-encoder"):
        prepare(spark, location, cloud.folder, settings(reject_limit=0.5), "another")
    assert open_cloud(spark, cloud.folder) == cloud


def test_a_folder_in_use_is_refused(spark: SparkSession, dirty: tuple) -> None:
    location, cloud, _ = dirty
    with output_lock(cloud.folder), pytest.raises(RunLocked):
        prepare(spark, location, cloud.folder, settings())


def test_too_many_rejects_stop_the_run_but_are_written(spark: SparkSession, dirty: tuple, tmp_path: Path) -> None:
    location, _, _ = dirty
    out = str(tmp_path / "out")
    with pytest.raises(InputError, match=r"11 of 47 rows .*reject_limit 0\.01.*duplicate_id 2, .*nan 1.*/rejects"):
        prepare(spark, location, out, settings())
    assert tables.read(spark, f"{out}/rejects").count() == 11
    assert open_cloud(spark, out) is None
    assert not (tmp_path / "out" / "veclink-scratch").exists()


def test_nothing_left_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    location = write(tmp_path / "rows.parquet", ["a", "b"], [None, []])
    with pytest.raises(InputError, match=r"none is left.*Got empty_vector 1, null_vector 1"):
        prepare(spark, location, str(tmp_path / "out"), settings(reject_limit=1))


def test_empty_target_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    location = write(tmp_path / "target.parquet", [], [])
    with pytest.raises(InputError, match=r"target.parquet has 0 rows"):
        prepare(spark, location, str(tmp_path / "out"), settings())


@pytest.mark.parametrize("kind", [pa.list_(pa.float16()), pa.list_(pa.float16(), 768)], ids=["list", "fixed"])
def test_half_precision_overflow_and_underflow(spark: SparkSession, tmp_path: Path, kind: pa.DataType) -> None:
    vectors = [np.full(768, 300, np.float16), np.full(768, 1e-4, np.float16), np.eye(768, dtype=np.float16)[0]]
    vectors[1][0] = np.float16(-1e-4)  # or it would be the direction of the first
    write(tmp_path / "part-1.parquet", [1, 2, 3], vectors, kind)
    (tmp_path / "_SUCCESS").touch()
    source = tables.read_input(spark, str(tmp_path))
    rows = {r["id"]: r["vector"] for r in source.rows.collect()}
    assert rows == {i + 1: vector.astype(float).tolist() for i, vector in enumerate(vectors)}
    again = tables.read_input(spark, str(tmp_path))
    assert source.version == again.version


def test_two_encoders_mixed_in_one_half_precision_table_are_warned_of(spark: SparkSession, tmp_path: Path) -> None:
    archive = np.load(Path(__file__).parents[1] / "data" / "scifact.npz")
    rows = np.concatenate([archive["minilm"][:300], archive["mpnet"][300:600, :384]])
    location = write(tmp_path / "rows.parquet", list(range(600)), list(rows), pa.list_(pa.float16()))
    cloud = prepare(spark, location, str(tmp_path / "out"), settings())
    assert "two encoders seem to be mixed" in cloud.warnings[0]
    assert (cloud.dim, cloud.points, cloud.encoder) == (384, 600, None)
    assert open_cloud(spark, cloud.folder) == cloud
    table = tables.read(spark, f"{cloud.folder}/points").toArrow()
    by_id = sorted(range(600), key=str)
    np.testing.assert_allclose(
        arrow_cols.matrix(table.column("vector"), 384), unit(rows.astype(np.float32))[by_id], atol=1e-6
    )


def test_encoder_column_fixed_size_lists_delta_input_and_a_changed_source(spark: SparkSession, tmp_path: Path) -> None:
    vectors = np.random.default_rng(5).standard_normal((12, DIM)).astype(np.float32)
    write(tmp_path / "rows.parquet", list(range(12)), list(vectors), pa.list_(pa.float32(), DIM))
    source, out = str(tmp_path / "delta"), str(tmp_path / "out")
    rows = spark.read.parquet(str(tmp_path / "rows.parquet"))
    tables.replace(rows.selectExpr("id", "vector", "if(id < 5, 'b', 'a') AS encoder"), source)
    with pytest.raises(InputError, match=r"no row of encoder c in column encoder.*Got encoders a, b"):
        prepare(spark, source, out, settings(encoder_column="encoder", reject_limit=0.5), "c")
    cloud = prepare(spark, source, out, settings(encoder_column="encoder", reject_limit=0.5))
    assert (cloud.encoder, cloud.rows_kept, cloud.rows_rejected) == ("a", 7, 5)
    assert {r["reason"] for r in tables.read(spark, f"{out}/rejects").collect()} == {"other_encoder"}
    # The source grows: another version, so the cloud is made anew, in place, and the old mark does not outlive it.
    tables.append_once(rows.selectExpr("id + 100 AS id", "vector", "'a' AS encoder").limit(1), source, "test", 1)
    grown = prepare(spark, source, out, settings(encoder_column="encoder", reject_limit=0.5))
    assert grown.rows_kept == 8
    assert grown.input_version != cloud.input_version
    assert replace(grown, warnings=()) == open_cloud(spark, out)
    # A crash before the last write leaves no mark.
    tables.clear(spark, f"{out}/statistics")
    assert open_cloud(spark, out) is None


def test_not_a_cloud(spark: SparkSession, tmp_path: Path) -> None:
    assert open_cloud(spark, str(tmp_path)) is None
    with pytest.raises(InputError, match="does not exist"):
        prepare(spark, str(tmp_path / "nothing"), str(tmp_path / "out"), settings())


def test_a_prepared_cloud_is_not_prepared_again(spark: SparkSession, dirty: tuple, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is a prepared cloud already\. Give it to `veclink link`"):
        prepare(spark, dirty[1].folder, str(tmp_path / "out"), settings())


def test_what_else_lies_in_the_output_folder_stays(spark: SparkSession, tmp_path: Path) -> None:
    source = write(tmp_path / "in.parquet", ["a", "b"], [[1.0, 2.0], [2.0, 1.0]])
    for name in ("scratch", "mine"):
        (tmp_path / "out" / name).mkdir(parents=True)
        (tmp_path / "out" / name / "notes.txt").write_text("keep")
    assert prepare(spark, source, str(tmp_path / "out"), settings()).points == 2
    assert all((tmp_path / "out" / name / "notes.txt").exists() for name in ("scratch", "mine"))
