"""One finished run that several files look at."""

from __future__ import annotations

import pytest

from clouds import problem
from link_runs import SETTINGS, lay_out
from veclink.runs.link import link


@pytest.fixture(scope="session")
def first_run(spark, tmp_path_factory):
    """A problem, what was asked, and the report."""
    p = problem(draw=2)
    request = lay_out(tmp_path_factory.mktemp("first"), p)
    return p, request, link(spark, request, SETTINGS)
