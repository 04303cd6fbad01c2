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

# Files are dealt to two workers in this order: the longest first, or one worker waits for the other at the end.
LONGEST = (
    *("test_link_again.py", "test_link.py", "test_consensus_again.py", "test_cli.py", "test_take_off.py"),
    *("test_consensus.py", "test_rounds.py", "test_cycles_run.py"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A real local session with Delta, two worker slots."""
    running = session(SparkSettings(master="local[2]", driver_memory="2g"), app="veclink-tests")
    yield running
    running.stop()
