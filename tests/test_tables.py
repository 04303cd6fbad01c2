"""Locations and what cannot be read."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from veclink import tables
from veclink.errors import InputError


def test_locations_mean_the_same_from_every_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert tables.resolve("a/b") == str(tmp_path / "a" / "b")
    assert tables.resolve("no-such-name") == str(tmp_path / "no-such-name")
    assert tables.resolve(f"file:{tmp_path}/with%20space") == f"{tmp_path}/with space"
    assert tables.resolve("s3a://bucket/x") == "s3a://bucket/x"
    assert tables.resolve("catalog.schema.table") == "catalog.schema.table"


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("/a/b", "/a/b", True),
        ("/a", "/a/b", True),
        ("/a/b/c", "/a/b", True),
        ("/a/b", "/a/bc", False),
        ("table", "/table", False),
    ],
)
def test_overlapping_folders(one, other, expected):
    assert tables.overlap(one, other) is expected


@pytest.mark.parametrize("name", ["no-such.parquet", "my file.parquet", "a.b.c.d", "", "no_such_table"])
def test_what_is_neither_path_nor_table_does_not_exist(spark, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        tables.read_input(spark, name)


@pytest.mark.parametrize("content", [b"", b"not parquet at all, and long enough for a footer"])
def test_a_broken_file_is_one_clear_line(spark, tmp_path, content):
    path = tmp_path / "rows.parquet"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"cannot be read as Parquet.* Got [^\n]*is not a Parquet file.*\. Give"):
        tables.read_input(spark, str(path))


def test_a_file_system_that_spark_does_not_know_is_named(spark):
    with pytest.raises(InputError, match=r's3://bucket/x cannot be reached\. Got No FileSystem for scheme "s3"'):
        tables.read_input(spark, "s3://bucket/x")


def test_letters_that_are_patterns_elsewhere_are_letters_in_a_path(spark, tmp_path):
    folder = tmp_path / "a [b] {c} é *"
    folder.mkdir()
    pq.write_table(pa.table({"id": ["x"]}), folder / "rows.parquet")
    assert tables.read_input(spark, str(folder)).rows.count() == 1


def test_files_that_do_not_fit_together_are_one_clear_line(spark, tmp_path):
    for name, kind in (("a", pa.string()), ("b", pa.int64())):
        pq.write_table(pa.table({"id": pa.array(["1"]).cast(kind)}), tmp_path / f"{name}.parquet")
    with (
        pytest.raises(InputError, match=r"cannot be read to its end.*b\.parquet.*\[id\]"),
        tables.reading(str(tmp_path)),
    ):
        tables.read_input(spark, str(tmp_path)).rows.toArrow()


def test_a_file_that_breaks_off_inside_is_named_whatever_the_query_does(spark, tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(
        pa.table({"id": [f"{i:08d}" for i in range(20_000)]}), path, compression="none", use_dictionary=False
    )
    content = bytearray(path.read_bytes())
    content[4:60] = b"\xff" * 56  # the first page's head; the footer is whole
    path.write_bytes(content)
    rows = tables.read_input(spark, str(tmp_path)).rows
    queries = (rows.toArrow, lambda: tables.replace(rows, str(tmp_path / "out")))
    for query in queries:
        with pytest.raises(InputError, match="cannot be read to its end"), tables.reading(str(path)):
            query()


def test_other_errors_pass_the_reader_by():
    with pytest.raises(ZeroDivisionError), tables.reading("x"):
        1 / 0  # noqa: B018
