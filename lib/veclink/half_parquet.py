"""Parquet files with half-precision columns, which Spark cannot read (PARQUET_TYPE_ILLEGAL, FLOAT16).

They are read by pyarrow on the executors, one row group a task, and widened to float32 on the way in. The files must be
reachable from every executor under the same address, as for Spark's own reader. Only top-level columns are widened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from pyarrow import fs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 4_096
MAX_TASKS = 1_024


@dataclass(frozen=True)
class HalfFiles:
    """Parquet files of one input: their URI scheme and authority, paths, and the schema Spark is to see."""

    location: str
    paths: tuple[str, ...]
    schema: pa.Schema

    @property
    def fingerprint(self) -> str:
        """A hash of the files' names, sizes and times; the folder they lie in does not count."""
        infos = open_uri(self.location)[0].get_file_info(list(self.paths))
        lines = sorted(f"{info.base_name} {info.size} {info.mtime_ns}" for info in infos)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def find(location: str) -> HalfFiles | None:
    """The Parquet files at a location, if any of them has a half-precision column; None if Spark can read them."""
    system, path = open_uri(location)
    try:
        paths = sorted(pads.dataset(path, format="parquet", filesystem=system).files)
        schemas = [pq.read_schema(p, filesystem=system) for p in paths]
    except (pa.ArrowInvalid, FileNotFoundError):
        return None  # not Parquet: Spark's reader says what is wrong
    if not any(_is_half(field.type) for schema in schemas for field in schema):
        return None
    schema = pa.schema([pa.field(field.name, widened(field.type)) for field in schemas[0]])
    return HalfFiles(location, tuple(paths), schema)


def read(spark: SparkSession, files: HalfFiles) -> DataFrame:
    """The rows of the files, half precision widened to float32.

    A file that lacks a column of the first file fails the task with the column's name.
    """
    system = open_uri(files.location)[0]
    tasks = [(p, g) for p in files.paths for g in range(pq.read_metadata(p, filesystem=system).num_row_groups)]
    names = files.schema.names
    location, schema = files.location, files.schema

    def load(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.to_pylist():
                with open_uri(location)[0].open_input_file(task["path"]) as handle:
                    opened = pq.ParquetFile(handle)
                    for part in opened.iter_batches(BATCH_ROWS, row_groups=[task["group"]], columns=names):
                        yield _widen(part, schema)

    todo = spark.createDataFrame(tasks, "path STRING, group INT").repartition(max(1, min(len(tasks), MAX_TASKS)))
    return todo.mapInArrow(load, spark.createDataFrame(schema.empty_table()).schema)


def open_uri(uri: str) -> tuple[fs.FileSystem, str]:
    """A file system and the path in it. Spark writes file:/path with one slash, which pyarrow refuses."""
    parsed = urlparse(uri)
    if parsed.scheme == "":
        return fs.LocalFileSystem(), uri
    if parsed.scheme == "file":
        return fs.LocalFileSystem(), unquote(parsed.path)
    return fs.FileSystem.from_uri(uri)  # type: ignore[no-any-return]


def widened(kind: pa.DataType) -> pa.DataType:
    """The nearest Arrow type that Spark reads: float32 for half precision, plain lists and strings for special ones."""
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(widened(kind.value_type))
    if pa.types.is_dictionary(kind):
        return widened(kind.value_type)
    if pa.types.is_large_string(kind):
        return pa.string()
    return kind


def _is_half(kind: pa.DataType) -> bool:
    return pa.types.is_float16(kind) or (hasattr(kind, "value_type") and _is_half(kind.value_type))


def _widen(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [batch.column(name).cast(schema.field(name).type) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
