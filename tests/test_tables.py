"""Locations and what cannot be read."""

from __future__ import annotations

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
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        tables.read_input(spark, str(path))
