"""Finished runs that several files look at."""

from __future__ import annotations

import pytest

from clouds import problem
from link_runs import CONSENSUS, SETTINGS, lay_out
from veclink.runs.link import link


@pytest.fixture(scope="session")
def first_run(spark, tmp_path_factory):
    """A problem, what was asked, and the report: the published loop."""
    p = problem(draw=2)
    request = lay_out(tmp_path_factory.mktemp("first"), p)
    return p, request, link(spark, request, SETTINGS)


@pytest.fixture(scope="session")
def consensus_run(spark, tmp_path_factory):
    """A problem, what was asked, and the report: preset consensus."""
    p = problem(1_000, draw=2)
    request = lay_out(tmp_path_factory.mktemp("consensus"), p)
    return p, request, link(spark, request, CONSENSUS)
