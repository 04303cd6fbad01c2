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

# Files that look at the same finished run go to one worker, which then makes it once.
GROUPS = {
    "published": ("test_link_again.py", "test_link.py", "test_measure.py"),
    "consensus": ("test_consensus_again.py", "test_consensus.py"),
}
# Groups and files are dealt in this order: the longest first, or one worker waits for the other at the end.
LONGEST = ("published", "consensus", "test_cli.py", "test_take_off.py", "test_rounds.py", "test_cycles_run.py")


def group(item: pytest.Item) -> str:
    """Where a test belongs: a group, or its own file."""
    return next((name for name, files in GROUPS.items() if item.path.name in files), item.path.name)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tell xdist which tests stay together, and begin with the longest."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item)))
    items.sort(key=lambda item: LONGEST.index(group(item)) if group(item) in LONGEST else len(LONGEST))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A real local session with Delta, two worker slots."""
    running = session(SparkSettings(master="local[2]", driver_memory="2g"), app="veclink-tests")
    yield running
    running.stop()
