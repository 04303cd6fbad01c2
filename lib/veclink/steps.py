"""Names for what Spark is doing: job tags, by which its event log tells the steps of a run apart."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX = "veclink-"


@contextlib.contextmanager
def step(spark: SparkSession, name: str) -> Iterator[None]:
    """Jobs that start while this lasts carry the tag `veclink-NAME`, on a session of any kind."""
    tag = PREFIX + name
    spark.addTag(tag)
    try:
        yield
    finally:
        spark.removeTag(tag)
