"""The only place that reads or writes tables: pinned versions in, idempotent writes out.

A location is a path (anything with a slash, or that exists) or the name of a catalog table.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from veclink import half_parquet
from veclink.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_URI = re.compile(r"[a-z][a-z0-9+.-]*:/")
# In the message of every error that Spark has with a file.
_UNREADABLE = "FAILED_READ_FILE"
_TABLE_NAME = re.compile(r"\w+(\.\w+){0,2}")


@dataclass(frozen=True)
class Input:
    """A table that was read: its rows, and the version of the data that was read."""

    rows: DataFrame
    version: str


def is_path(location: str) -> bool:
    """Whether a location is a path and not the name of a catalog table."""
    return "/" in location or Path(location).exists() or not _TABLE_NAME.fullmatch(location)


def resolve(location: str) -> str:
    """A location that means the same from every folder: local paths absolute, URIs and catalog names as they are."""
    if location.startswith("file:"):
        location = unquote(urlparse(location).path)
    if _URI.match(location) or not is_path(location):
        return location
    return str(Path(location).resolve())


def resolve_folder(location: str) -> str:
    """The same for a folder to write to, which a bare name always means, whether it is there or not."""
    return resolve(location) if _URI.match(location) else str(Path(location).resolve())


def overlap(one: str, other: str) -> bool:
    """Whether two local paths are the same, or one lies in the other."""
    if not (is_local(one) and is_local(other)):
        return one == other
    a, b = Path(one).resolve(), Path(other).resolve()
    return a == b or a in b.parents or b in a.parents


def is_local(location: str) -> bool:
    """Whether a location is a path on this machine's file system."""
    return is_path(location) and not _URI.match(location)


def is_delta(spark: SparkSession, location: str) -> bool:
    """Whether there is a Delta table at a path, or under a catalog name.

    Raises InputError if Spark cannot reach the file system of the path.
    """
    from delta.tables import DeltaTable
    from py4j.protocol import Py4JJavaError

    if not is_path(location):
        if not spark.catalog.tableExists(location):
            return False
        return str(spark.sql(f"DESCRIBE DETAIL {location}").first()["format"]) == "delta"  # type: ignore[index]
    try:
        return DeltaTable.isDeltaTable(spark, location)
    except Py4JJavaError as error:
        raise InputError(
            f"{location} cannot be reached",
            got=cause(error),
            do="Give Spark the package and the credentials of that file system, or a local path",
        ) from None


def read_input(spark: SparkSession, location: str) -> Input:
    """A user's table, pinned: Delta (path or catalog name), or Parquet or CSV (path).

    The version of a Delta table is its own id and commit number (a commit number alone would take two tables for
    one); of files, a hash of their names, sizes and times. Half-precision Parquet is widened to float32.
    Raises InputError if there is nothing there or it has no rows' schema.
    """
    if not location:
        raise InputError("an empty location does not exist", do="Give a path or the name of a table")
    if is_delta(spark, location):
        version = delta_version(spark, location)
        return Input(read(spark, location, version), f"delta:{_delta_id(spark, location)}@{version}")
    if not is_path(location):
        raise InputError(f"table {location} does not exist or is not a Delta table", do="Give a Delta table or a path")
    if is_local(location) and not Path(location).exists():
        raise InputError(
            f"{location} does not exist",
            do="Give a Parquet or Delta folder, a Parquet file or a CSV file",
        )
    return _read_files(spark, location)


@contextlib.contextmanager
def reading(location: str) -> Iterator[None]:
    """Whatever Spark cannot read of a user's files while this lasts is an InputError that names the file."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if _UNREADABLE not in str(error):
            raise
        raise InputError(
            f"{location} cannot be read to its end",
            got=cause(error),
            do="Repair that file, or take it out of the folder",
        ) from None


def cause(error: BaseException) -> str:
    """What Spark says went wrong, in one line: of a chain of Java errors the one that names a file, or the last."""
    java, texts = getattr(error, "java_exception", None), []
    while java is not None:
        texts.append(java.getMessage() or "")
        java = java.getCause()
    texts = [text for text in texts if text.strip()] or [str(error).strip() or type(error).__name__]
    chosen = next((text for text in texts if _UNREADABLE in text), texts[-1])
    lines = chosen.strip().splitlines()
    # A failed job tells the whole story, and its reason last.
    reasons = [line.split(": ", 2)[-1] for line in lines if line.startswith("Caused by: ")]
    return (reasons or lines[:1])[-1].rstrip(".")


def _read_files(spark: SparkSession, location: str) -> Input:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    is_csv = location.endswith(".csv")
    # Asked first where asking is cheap: Spark's own attempt leaves a page of stack trace in the log.
    half = half_parquet.find(location) if is_local(location) and not is_csv else None
    if half is not None:
        return Input(half_parquet.read(spark, half), f"files:{half.fingerprint}")
    try:
        rows = _read_csv(spark, location) if is_csv else spark.read.parquet(_literal(location))
        version = f"files:{_fingerprint(rows)}"
    except (PySparkException, Py4JJavaError) as error:
        half = half_parquet.find(location) if "FLOAT16" in str(error) else None
        if half is not None:
            return Input(half_parquet.read(spark, half), f"files:{half.fingerprint}")
        raise InputError(
            f"{location} cannot be read as {'CSV' if is_csv else 'Parquet or Delta'}",
            got=cause(error),
            do="Give a .csv file, a Parquet file or folder, or a Delta table",
        ) from None
    return Input(rows, version)


def _read_csv(spark: SparkSession, location: str) -> DataFrame:
    # Quotes are doubled and fields may hold line breaks (RFC 4180); blanks around what is not quoted do not count.
    reader = spark.read.option("header", True).option("escape", '"').option("multiLine", True)
    for side in ("Leading", "Trailing"):
        reader = reader.option(f"ignore{side}WhiteSpace", True)
    return reader.csv(location)


def _literal(location: str) -> str:
    """A local path as Spark's Parquet reader wants it, which takes some letters for patterns."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", location) if is_local(location) else location


def _fingerprint(rows: DataFrame) -> str:
    # The last path part only: the same files under another folder are the same input.
    m = "_metadata"
    files = rows.select(f"{m}.file_name", f"{m}.file_size", f"{m}.file_modification_time").distinct()
    lines = sorted(f"{f} {size} {time}" for f, size, time in files.collect())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def delta_version(spark: SparkSession, location: str) -> int:
    """Number of the newest commit of a Delta table."""
    return int(spark.sql(f"DESCRIBE HISTORY {_name(location)} LIMIT 1").first()["version"])  # type: ignore[index]


def _delta_id(spark: SparkSession, location: str) -> str:
    return str(spark.sql(f"DESCRIBE DETAIL {_name(location)}").first()["id"]).replace("-", "")[:12]  # type: ignore[index]


def _name(location: str) -> str:
    return f"delta.`{location}`" if is_path(location) else location


def read(spark: SparkSession, location: str, version: int | None = None) -> DataFrame:
    """A Delta table, at a given version or as it is now."""
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    return reader.load(location) if is_path(location) else reader.table(location)


def replace(rows: DataFrame, location: str) -> None:
    """Write rows as the whole content of a Delta table."""
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", True).save(location)


def clear(spark: SparkSession, location: str) -> None:
    """Leave a Delta table with its columns but no rows; nothing happens where there is none."""
    if is_delta(spark, location):
        replace(read(spark, location).limit(0), location)


def write_scratch(rows: DataFrame, location: str) -> None:
    """Write rows to a place of their own as plain Parquet: for tables that do not outlive the run that wrote them.

    Writing and opening a Delta table costs a second each, which a table nobody else sees has no use for.
    """
    rows.write.mode("error").parquet(location)


def read_scratch(spark: SparkSession, location: str, schema: str) -> DataFrame:
    """What `write_scratch` wrote."""
    return spark.read.schema(schema).parquet(_literal(location))


def remove_scratch(spark: SparkSession, folder: str) -> None:
    """Remove a folder of scratch tables, if there is one. Elsewhere than on a local disk an empty table stays."""
    if not is_local(folder):
        spark.createDataFrame([], "gone INT").write.mode("overwrite").parquet(folder)
    elif Path(folder).exists():
        shutil.rmtree(folder)


def append_once(rows: DataFrame, location: str, writer: str, sequence: int) -> None:
    """Append rows to a Delta table unless the writer has already committed this sequence number.

    Sequence numbers of one writer must grow. A retry after a crash between two commits then adds nothing twice.
    """
    write = rows.write.format("delta").mode("append").option("txnAppId", writer).option("txnVersion", sequence)
    write.save(location)


def files(rows: DataFrame) -> list[str]:
    """The data files of a table read by `read`, as URIs in a fixed order."""
    return sorted(rows.inputFiles())
