"""What Spark and Delta add: the same run as Spark jobs over Delta tables and in one process, one after the other.

make bench BENCH_ARGS="-k overhead"
"""

from __future__ import annotations

import os
import time

import pytest

from bench.evidence import keep
from clouds import problem
from in_process import link_in_process
from link_runs import found_pairs, lay_out
from veclink.runs.link import LinkRequest, link
from veclink.runs.prepare import prepare
from veclink.settings import load_settings

pytestmark = pytest.mark.bench

ROUNDS = 3


def test_overhead_of_spark_and_delta(spark, tmp_path, capsys):
    """10,000 x 10,000 points; the session is up and the clouds are prepared, their costs are told apart."""
    cores = os.cpu_count() or 1
    settings = load_settings(
        overrides=[
            "link.method=hashing",
            f"link.rounds_max_small={ROUNDS}",
            "link.stop_rounds=99",
            "link.takeoff_recovery=0",
        ]
    )
    p = problem(objects=13_333, overlap=0.5, seeds=30, draw=0)
    request = lay_out(tmp_path, p)
    seconds = {}
    begun = time.perf_counter()
    for side in ("source", "target"):
        prepare(spark, getattr(request, side), str(tmp_path / side), settings)
    seconds["prepare"] = time.perf_counter() - begun
    begun = time.perf_counter()
    expected = link_in_process(p.source, p.target, p.seeds, settings.link, threads=cores)
    seconds["one_process"] = time.perf_counter() - begun
    begun = time.perf_counter()
    again = LinkRequest(str(tmp_path / "source"), str(tmp_path / "target"), request.out, request.seeds)
    link(spark, again, settings)
    seconds["spark"] = time.perf_counter() - begun
    ratio = seconds["spark"] / seconds["one_process"]
    figures = {**seconds, "ratio": ratio, "points": [len(p.source), len(p.target)], "rounds": ROUNDS, "cores": cores}
    keep("spark_overhead", figures)
    with capsys.disabled():
        print(
            f"\n{len(p.source):,} x {len(p.target):,}, {ROUNDS} rounds, {cores} cores: one process "
            f"{seconds['one_process']:.1f} s, Spark and Delta {seconds['spark']:.1f} s, ratio {ratio:.2f}; preparing "
            f"both clouds {seconds['prepare']:.1f} s"
        )
    # One process searched with all cores, a Spark task with one: sums round apart, so a close call may fall otherwise.
    found = found_pairs(request.out)
    same = sum(expected.anchors.get(pair) == pytest.approx(confidence) for pair, confidence in found.items())
    assert same >= 0.999 * max(len(found), len(expected.anchors))
