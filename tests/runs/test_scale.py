"""Link runs above tau: cells, a part of the rows first, and a run that dies in between. Real Spark, real Delta."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from clouds import problem
from link_runs import consensus, found_pairs, lay_out, published, quality, same_clouds, stop_before_iteration
from veclink.errors import InputError
from veclink.runs.link import link

SMALL_CELLS = ["link.tau_rows=500", "cells.rows=150", "cells.group_rows=800", "cells.growing_rows=500"]
# Few rounds: a start, growing ones, and one of all rows.
SETTINGS = consensus(*SMALL_CELLS, "consensus.window=1", "cells.full_rounds=1", "spark.partitions=2")


@pytest.fixture(scope="module")
def finished(spark, tmp_path_factory):
    """A problem of 900 rows a side, its request, and the report of a run in cells."""
    folder = tmp_path_factory.mktemp("scale")
    p = problem(1_200, seeds=20, noise=0.02)
    request = lay_out(folder, p)
    return p, request, link(spark, request, SETTINGS)


def rounds(out: str) -> list[dict]:
    return sorted(DeltaTable(f"{out}/iterations").to_pyarrow_table().to_pylist(), key=lambda r: r["round"])


def test_links_in_cells_are_right_and_nearly_complete(finished):
    p, request, report = finished
    precision, recall = quality(p, set(found_pairs(request.out)))
    assert report["taken_off"]
    assert precision > 0.93
    assert recall > 0.9
    assert abs(report["estimates"]["precision"] - precision) < 0.05


def test_anchors_grow_on_a_part_of_the_rows_and_the_last_round_takes_all(finished):
    _, request, _ = finished
    taken = [r["sources"] for r in rounds(request.out)]
    assert len(taken) >= 4
    assert taken == [500] * (len(taken) - 1) + [900]
    assert not (Path(request.out) / "veclink-scratch").exists()


def test_a_run_that_dies_before_its_last_round_ends_with_the_same_links(spark, finished, tmp_path, monkeypatch):
    _, first, report = finished
    request = same_clouds(tmp_path, first)
    with monkeypatch.context() as patch:
        stop_before_iteration(patch, report["rounds"])
        with pytest.raises(KeyboardInterrupt):
            link(spark, request, SETTINGS)
    assert len(rounds(request.out)) == report["rounds"] - 1
    link(spark, request, SETTINGS)
    assert found_pairs(request.out) == found_pairs(first.out)


def test_what_cannot_be_compared_in_cells_is_refused(spark, finished, tmp_path):
    request = same_clouds(tmp_path, finished[1])
    for settings in (published("link.tau_rows=500"), consensus("link.tau_rows=500", "consensus.view_kind=hash")):
        with pytest.raises(InputError, match="500 points cannot be matched all with all") as refused:
            link(spark, request, settings)
        assert "cca or ridge" in str(refused.value)
