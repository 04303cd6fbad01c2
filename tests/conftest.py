"""One Spark session for the whole suite, started when the first test asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from veclink.runtime import session
from veclink.settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Two workers run tests side by side: more threads would only wait for each other. Spark gives its workers one, too.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A real local session with Delta, two worker slots."""
    running = session(SparkSettings(master="local[2]", driver_memory="2g"), app="veclink-tests")
    yield running
    running.stop()
