"""Runs into a folder that is not empty: repeated, refused, overwritten, killed and resumed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

from link_runs import ONE, OTHER, QUICK, SETTINGS, names, read_links, same_clouds, stop_before_iteration, write_cloud
from veclink import tables
from veclink.errors import InputError
from veclink.runs.link import LinkRequest, link
from veclink.runs.measure import measure


@pytest.fixture(scope="module")
def one_round(spark, tmp_path_factory, first_run):
    """A finished run of one round."""
    request = same_clouds(tmp_path_factory.mktemp("one"), first_run[1])
    link(spark, request, ONE)
    return request


def copied(folder: Path, request: LinkRequest) -> LinkRequest:
    """The same run in a folder of its own, its output with it."""
    shutil.copytree(request.out, folder / "out")
    return replace(request, out=str(folder / "out"))


def test_the_same_run_again_returns_the_stored_result_and_writes_nothing(spark, first_run):
    _, request, report = first_run
    before = {
        name: DeltaTable(f"{request.out}/{name}").version() for name in ("links", "evidence", "iterations", "run")
    }
    assert link(spark, request, SETTINGS) == report
    after = {name: DeltaTable(f"{request.out}/{name}").version() for name in before}
    assert after == before


def test_another_run_in_the_same_folder_is_refused_and_overwrites_only_when_told(spark, tmp_path, one_round):
    request = copied(tmp_path, one_round)
    links = read_links(request.out)
    with pytest.raises(InputError, match="holds another run"):
        link(spark, request, OTHER)
    assert read_links(request.out).equals(links)
    again = replace(request, overwrite=True)
    assert link(spark, again, OTHER)["run_key"] != link(spark, again, ONE)["run_key"]
    assert read_links(request.out).equals(links)  # there and back again: nothing of the other run is left


def test_a_refused_run_leaves_the_finished_one_as_it_was(spark, tmp_path, first_run):
    p, first, _ = first_run
    names_ = ("source/points", "source/statistics", "links", "run")
    versions = {name: DeltaTable(f"{first.out}/{name}").version() for name in names_}
    write_cloud(tmp_path / "other.parquet", names("a", 300), p.source[:300])
    with pytest.raises(InputError, match="holds another run"):
        link(spark, replace(first, source=str(tmp_path / "other.parquet")), SETTINGS)
    assert {name: DeltaTable(f"{first.out}/{name}").version() for name in names_} == versions


def test_a_run_of_a_version_with_other_settings_is_told_apart_and_can_be_overwritten(spark, tmp_path, one_round):
    request = copied(tmp_path, one_round)
    row = tables.read(spark, f"{request.out}/run").withColumn("run_key", F.lit("of another version"))
    foreign = F.regexp_replace("settings", '"csls_k"', '"csls_length"')
    tables.replace(row.withColumn("settings", foreign).localCheckpoint(), f"{request.out}/run")
    with pytest.raises(InputError, match="holds another run"):
        link(spark, request, ONE)
    with pytest.raises(InputError, match="a version of veclink with other settings"):
        measure(spark, request.out, request.seeds, SETTINGS)
    assert link(spark, replace(request, overwrite=True), ONE)["rounds"] == 1


def test_an_overwrite_that_was_killed_leaves_a_free_folder(spark, tmp_path, one_round, monkeypatch):
    """The folder is marked before anything is cleared; the next run, this one or another, starts afresh."""
    request = copied(tmp_path, one_round)
    links = read_links(request.out)
    clear = tables.clear

    def failing(session, location):
        if location.endswith("iterations"):
            raise KeyboardInterrupt
        clear(session, location)

    monkeypatch.setattr("veclink.runs.record.tables.clear", failing)
    with pytest.raises(KeyboardInterrupt):
        link(spark, replace(request, overwrite=True), OTHER)
    monkeypatch.undo()
    link(spark, request, ONE)
    assert read_links(request.out).equals(links)


def test_a_driver_killed_after_round_two_goes_on_to_the_same_links(spark, tmp_path, first_run):
    _, first, _ = first_run
    request = same_clouds(tmp_path, first)
    child = f"""
import os, signal, sys
from veclink.runs import rounds
from veclink.runs.link import LinkRequest, link
from veclink.runtime import session
from veclink.settings import load_settings
whole = rounds.Rounds._round
def limited(self, number):
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(self, number)
rounds.Rounds._round = limited
settings = load_settings(None, "reference", {[*QUICK, "spark.master=local[1]"]!r})
request = LinkRequest({request.source!r}, {request.target!r}, {request.out!r}, {request.seeds!r})
link(session(settings.spark), request, settings)
"""
    killed = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, timeout=300, check=False)
    assert killed.returncode == -9, killed.stderr[-2000:]
    assert DeltaTable(f"{request.out}/iterations").to_pyarrow_table().num_rows == 2
    assert not (Path(request.out) / "links").exists()
    link(spark, request, SETTINGS)
    assert read_links(request.out).equals(read_links(first.out))


def test_a_run_stopped_between_the_two_commits_of_a_round_adds_nothing_twice(spark, tmp_path, first_run, monkeypatch):
    _, first, _ = first_run
    request = same_clouds(tmp_path, first)
    stop_before_iteration(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        link(spark, request, SETTINGS)
    monkeypatch.undo()
    link(spark, request, SETTINGS)
    assert read_links(request.out).equals(read_links(first.out))
    evidence = [DeltaTable(f"{out}/evidence").to_pyarrow_table() for out in (request.out, first.out)]
    assert evidence[0].num_rows == evidence[1].num_rows
