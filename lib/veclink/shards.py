"""Prepared vectors on an executor's own disk: built once per host from the points table, then memory-mapped.

Every worker process of a host shares the pages; nothing of a cloud is held on the Python heap.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow.parquet as pq
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from pyarrow import fs

from veclink import arrow_cols


@dataclass(frozen=True)
class Shard:
    """Where a points table lies, as plain values that travel to executors.

    files: URIs of its Parquet files. rows, dim: its shape. work_dir: local folder for the copy; None: the system's
    temporary folder.
    """

    files: tuple[str, ...]
    rows: int
    dim: int
    work_dir: str | None = None

    @property
    def local_path(self) -> Path:
        """The local copy; its name is a hash of the file names, which Delta never uses twice."""
        key = hashlib.sha256("\n".join(self.files).encode()).hexdigest()[:24]
        return Path(self.work_dir or tempfile.gettempdir()) / f"veclink-shards-{os.getuid()}" / f"{key}.npy"


@functools.lru_cache(maxsize=8)
def load(shard: Shard) -> NDArray[np.float32]:
    """The (rows, dim) float32 matrix of a shard, read-only and memory-mapped; row number is position.

    The first caller on a host builds the local copy (4 x rows x dim bytes of disk) while the others wait.
    """
    path = shard.local_path
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _build(shard, path)
    return np.load(path, mmap_mode="r")  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=2)
def numbers(files: tuple[str, ...], size: int, names: tuple[str, ...], missing: float) -> tuple[NDArray[Any], ...]:
    """Columns of a table of numbers as arrays, read-only, by its column `place`.

    files: URIs of its Parquet files. size: of the arrays. missing: what stands where the table has no row.
    """
    out: tuple[NDArray[Any], ...] = ()
    for uri in files:
        system, name = _open(uri)
        with system.open_input_file(name) as handle:
            rows = pq.read_table(handle, columns=["place", *names])
        out = out or tuple(np.full(size, missing, rows[c].type.to_pandas_dtype()) for c in names)
        for array, column in zip(out, names, strict=True):
            array[rows["place"].to_numpy()] = rows[column].to_numpy()
    for array in out:
        array.flags.writeable = False
    return out


def discard(shard: Shard) -> None:
    """Remove this host's copy of a shard, if there is one."""
    shard.local_path.unlink(missing_ok=True)
    shard.local_path.with_suffix(".lock").unlink(missing_ok=True)


def _build(shard: Shard, path: Path) -> None:
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        matrix = open_memmap(partial, mode="w+", dtype=np.float32, shape=(shard.rows, shard.dim))
        seen = 0
        for uri in shard.files:
            seen += _copy_file(uri, matrix)
        if seen != shard.rows:
            raise RuntimeError(f"points table holds {seen} rows, expected {shard.rows}: was it changed after prepare?")
        matrix.flush()
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _copy_file(uri: str, matrix: NDArray[np.float32]) -> int:
    system, name = _open(uri)
    count = 0
    with system.open_input_file(name) as handle:
        for batch in pq.ParquetFile(handle).iter_batches(arrow_cols.rows_per_batch(matrix.shape[1], 16_384)):
            rows = batch.column("row").to_numpy()
            matrix[rows] = arrow_cols.matrix(batch.column("vector"), matrix.shape[1])
            count += len(rows)
    return count


def _open(uri: str) -> tuple[fs.FileSystem, str]:
    parsed = urlparse(uri)
    if parsed.scheme in ("", "file"):  # Spark writes file:/path with one slash, which pyarrow refuses
        return fs.LocalFileSystem(), unquote(parsed.path)
    if parsed.scheme == "dbfs":  # mounted on every Databricks host
        return fs.LocalFileSystem(), "/dbfs" + unquote(parsed.path)
    # Hadoop's names for what Arrow knows by another.
    scheme = {"s3a": "s3", "s3n": "s3"}.get(parsed.scheme, parsed.scheme)
    return fs.FileSystem.from_uri(uri.replace(parsed.scheme, scheme, 1))  # type: ignore[no-any-return]
