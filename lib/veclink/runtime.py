"""Where a run lives: the Spark session, Java, the lock on the output folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from veclink.errors import InputError, RunLocked
from veclink.java import java_home, java_major
from veclink.local_spark import local_session
from veclink.settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["java_home", "java_major", "output_lock", "session"]


def session(settings: SparkSettings, app: str = "veclink") -> SparkSession:
    """The running Spark session where there is one (notebook, spark-submit, Databricks), else a local one with Delta.

    Raises InputError if a local session is needed and no supported Java is found.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if (
        os.environ.get("DATABRICKS_RUNTIME_VERSION")
        or os.environ.get("PYSPARK_GATEWAY_PORT")
        or (os.environ.get("SPARK_REMOTE"))
    ):
        # Started by a platform or spark-submit: its configuration is the user's, not ours.
        return SparkSession.builder.appName(app).getOrCreate()
    return local_session(settings, app)


@contextlib.contextmanager
def output_lock(out: str) -> Iterator[None]:
    """Hold the output folder for this process; the system frees it when the process dies, however it dies.

    Only folders on a file system can be locked this way; on object stores it does nothing (DESIGN.md says so).
    Raises RunLocked if another process holds it, InputError if the folder cannot be made or written, or is itself a
    table.
    """
    if re.match(r"[a-z][a-z0-9+.-]*:/", out):
        yield
        return
    folder = Path(out)
    if (folder / "_delta_log").exists() or next(folder.glob("*.parquet"), None):
        raise InputError(f"output folder {out} is a table", got="Delta or Parquet files in it",
                         do="Choose another folder")  # fmt: skip
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".lock").touch()
    except OSError as error:
        raise InputError(f"output folder {out} cannot be written", got=str(error), do="Choose another folder") from None
    with (folder / ".lock").open("a+", encoding="ascii") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.seek(0)
            raise RunLocked(
                f"another run is writing to {out}",
                got=f"lock held by process {handle.read().strip() or 'unknown'}",
                do="Wait for it, or choose another --out",
            ) from None
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield
