"""What Spark and Delta add: the same run as Spark jobs over Delta tables and in one process, one after the other.

make bench BENCH_ARGS="-k overhead"
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from bench.evidence import keep
from clouds import problem
from in_process import link_in_process
from link_runs import found_pairs, lay_out
from veclink.runs.link import LinkRequest, link
from veclink.runs.prepare import prepare
from veclink.settings import load_settings

ROUNDS = 3

# The run takes longer than a test may.
pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]


def seconds_of(work):
    begun = time.perf_counter()
    value = work()
    return time.perf_counter() - begun, value


def session_seconds() -> float:
    """A process of its own until its Spark session is up."""
    code = "from veclink.runtime import session; from veclink.settings import SparkSettings; session(SparkSettings())"
    return seconds_of(lambda: subprocess.run([sys.executable, "-c", code], check=True, capture_output=True))[0]


def test_overhead_of_spark_and_delta(spark, tmp_path, capsys):
    """10,000 x 10,000 points; the session is up and the clouds are prepared, their costs are told apart."""
    cores = os.cpu_count() or 1
    settings = load_settings(
        preset="reference",
        overrides=[f"link.rounds_max_small={ROUNDS}", "link.stop_rounds=99", "link.takeoff_recovery=0"],
    )
    p = problem(objects=13_333, overlap=0.5, seeds=30, draw=0)
    request = lay_out(tmp_path, p)
    clouds = {side: str(tmp_path / side) for side in ("source", "target")}
    seconds = {"session": session_seconds()}
    seconds["prepare"], _ = seconds_of(
        lambda: [prepare(spark, getattr(request, side), at, settings) for side, at in clouds.items()]
    )
    # As many views at once as Spark runs tasks, each with one thread: the same arithmetic, to the last bit.
    seconds["one_process"], expected = seconds_of(
        lambda: link_in_process(p.source, p.target, p.seeds, settings.link, workers=cores)
    )
    again = LinkRequest(clouds["source"], clouds["target"], request.out, request.seeds)
    seconds["spark"], _ = seconds_of(lambda: link(spark, again, settings))
    ratio = seconds["spark"] / seconds["one_process"]
    figures = {**seconds, "ratio": ratio, "points": [len(p.source), len(p.target)], "rounds": ROUNDS, "cores": cores}
    keep("spark_overhead", figures)
    with capsys.disabled():
        print(
            f"\n{len(p.source):,} x {len(p.target):,}, {ROUNDS} rounds, {cores} cores: one process "
            f"{seconds['one_process']:.1f} s, Spark and Delta {seconds['spark']:.1f} s, ratio {ratio:.2f}; not "
            f"counted: session {seconds['session']:.1f} s, preparing both clouds {seconds['prepare']:.1f} s"
        )
    assert found_pairs(request.out) == pytest.approx(expected.anchors)
