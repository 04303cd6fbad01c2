"""Consensus runs that are stopped, resumed or split differently: the links stay the same."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable

from link_runs import (
    CONSENSUS,
    consensus,
    found_pairs,
    links_in_process,
    read_links,
    same_clouds,
    stop_before_iteration,
)
from veclink.errors import InputError
from veclink.runs.link import link


def test_links_do_not_depend_on_the_number_of_partitions(spark, tmp_path, consensus_run):
    found = []
    for tasks in (1, 7, 64):
        request = same_clouds(tmp_path / str(tasks), consensus_run[1])
        link(spark, request, consensus(f"spark.partitions={tasks}", "consensus.rounds_max=2"))
        found.append(read_links(request.out))
    assert found[0].num_rows > 300
    assert found[1].equals(found[0])
    assert found[2].equals(found[0])


def test_a_run_stopped_between_the_two_commits_of_a_round_goes_on_to_the_same_links(
    spark, tmp_path, consensus_run, monkeypatch
):
    request = same_clouds(tmp_path, consensus_run[1])
    stop_before_iteration(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        link(spark, request, CONSENSUS)
    monkeypatch.undo()
    link(spark, request, CONSENSUS)
    assert read_links(request.out).equals(read_links(consensus_run[1].out))


def test_a_run_whose_tables_tell_of_different_rounds_does_not_go_on(spark, tmp_path, consensus_run, monkeypatch):
    request = same_clouds(tmp_path, consensus_run[1])
    stop_before_iteration(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        link(spark, request, CONSENSUS)
    monkeypatch.undo()
    DeltaTable(f"{request.out}/judged").delete("round = 2")
    with pytest.raises(InputError, match=r"0 candidates of round 2, [1-9][0-9]* expected"):
        link(spark, request, CONSENSUS)


def test_a_start_that_begins_again_survives_a_stop(spark, tmp_path, consensus_run, monkeypatch):
    settings = consensus("consensus.start_agreement=1", "consensus.start_rounds_max=2", "consensus.rounds_max=4")
    p, first, _ = consensus_run
    request = same_clouds(tmp_path, first)
    stop_before_iteration(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        link(spark, request, settings)
    monkeypatch.undo()
    link(spark, request, settings)
    assert found_pairs(request.out) == pytest.approx(links_in_process(p, settings))
    views = DeltaTable(f"{request.out}/iterations").to_pyarrow_table().sort_by("round")["views"].to_pylist()
    assert views[:3] == [2, 2, 4]  # two starts of two maps, then views
