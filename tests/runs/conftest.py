"""Finished runs that several files look at: whoever needs one first makes it, for all workers."""

from __future__ import annotations

import fcntl
import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clouds import problem
from link_runs import CONSENSUS, SETTINGS, lay_out
from veclink.runs.link import link


def made_once(base: Path, name: str, make: Callable[[Path], Any]) -> Any:
    """What `make` returns for a folder of that name; other workers wait for it and read what the first has kept."""
    # Workers have folders of their own inside the session's.
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    kept = shared / f"{name}.pickle"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            # A new one each time: after a failure the next worker fails by itself, not over what is left.
            folder = Path(tempfile.mkdtemp(prefix=name, dir=shared))
            kept.write_bytes(pickle.dumps(make(folder)))
    return pickle.loads(kept.read_bytes())


@pytest.fixture(scope="session")
def first_run(spark, tmp_path_factory):
    """A problem, what was asked, and the report: the published loop."""

    def make(folder):
        p = problem(draw=2)
        request = lay_out(folder, p)
        return p, request, link(spark, request, SETTINGS)

    return made_once(tmp_path_factory.getbasetemp(), "first", make)


@pytest.fixture(scope="session")
def consensus_run(spark, tmp_path_factory):
    """A problem, what was asked, and the report: preset consensus."""

    def make(folder):
        p = problem(1_000, draw=2)
        request = lay_out(folder, p)
        return p, request, link(spark, request, CONSENSUS)

    return made_once(tmp_path_factory.getbasetemp(), "consensus", make)
