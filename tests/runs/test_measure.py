"""Judging a run: hand-computed figures, controls, floors, and the state without a truth."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from link_runs import SETTINGS, quality, read_links, write_pairs
from veclink.errors import GateNotMet, InputError
from veclink.runs.measure import check_floors, measure
from veclink.settings import load_settings
from veclink.stages.measure import judged, reliability


@pytest.fixture
def run(first_run):
    p, request, _ = first_run
    return p, request.out


def truth_file(folder, p, partners=None):
    targets = list(p.truth.values()) if partners is None else partners
    return write_pairs(
        folder / "truth.csv", [(f"a{s:05d}", f"b{t:05d}") for s, t in zip(p.truth, targets, strict=True)]
    )


def test_figures_are_those_of_the_definitions(spark, run, tmp_path):
    p, out = run
    found = measure(spark, out, truth_file(tmp_path, p), SETTINGS)
    rows = [r for r in read_links(out).to_pylist() if not r["is_seed"]]
    pairs = {(int(r["source_id"][1:]), int(r["target_id"][1:])) for r in rows}
    precision, recall = quality(p, pairs)
    assert found["precision"] == pytest.approx(precision)
    assert found["recall"] == pytest.approx(recall)
    assert found["f1"] == pytest.approx(2 * precision * recall / (precision + recall))
    right = np.array([p.truth.get(int(r["source_id"][1:])) == int(r["target_id"][1:]) for r in rows])
    confidence = np.array([r["confidence"] for r in rows])
    bins = np.minimum((confidence * 10).astype(int), 9)
    error = sum(
        abs(confidence[bins == b].mean() - right[bins == b].mean()) * (bins == b).mean() for b in set(bins.tolist())
    )
    assert found["calibration_error"] == pytest.approx(error)
    assert sum(b["links"] for b in found["reliability"]) == len(rows)
    assert found["truth_outside"] == 0
    json.dumps(found)


def test_true_pairs_of_ids_that_are_in_no_cloud_are_counted(spark, run, tmp_path):
    p, out = run
    pairs = [(f"a{s:05d}", f"b{t:05d}") for s, t in p.truth.items()]
    other = [(a, b) if i > 6 else (a, f"{b} ?") for i, (a, b) in enumerate(pairs)]
    assert measure(spark, out, write_pairs(tmp_path / "other.csv", other), SETTINGS)["truth_outside"] == 7


def test_the_last_round_has_the_figures_of_the_whole_run(spark, run, tmp_path):
    p, out = run
    found = measure(spark, out, truth_file(tmp_path, p), SETTINGS)
    last = found["rounds"][-1]
    assert [r["round"] for r in found["rounds"]] == list(range(1, last["round"] + 1))
    assert (last["precision"], last["recall"]) == (pytest.approx(found["precision"]), pytest.approx(found["recall"]))


def test_with_a_shuffled_truth_precision_falls_to_chance(spark, run, tmp_path):
    p, out = run
    shuffled = np.random.default_rng(0).permutation(list(p.truth.values())).tolist()
    assert measure(spark, out, truth_file(tmp_path, p, shuffled), SETTINGS)["precision"] < 0.03


def test_a_floor_that_is_not_reached_is_a_gate(spark, run, tmp_path):
    p, out = run
    strict = load_settings(overrides=["measure.precision_floor=1.0"])
    found = measure(spark, out, truth_file(tmp_path, p), strict)
    with pytest.raises(GateNotMet, match="precision is below"):
        check_floors(found, strict)
    check_floors(found, load_settings(overrides=["measure.precision_floor=0.5", "measure.recall_floor=0.5"]))
    with pytest.raises(InputError, match="need a truth"):
        measure(spark, out, None, strict)


def test_a_truth_of_other_clouds_is_refused(spark, run, tmp_path):
    p, out = run
    swapped = write_pairs(tmp_path / "swapped.csv", [(f"b{t:05d}", f"a{s:05d}") for s, t in p.truth.items()])
    with pytest.raises(InputError, match="no pair of the truth"):
        measure(spark, out, swapped, SETTINGS)


def test_a_run_can_be_measured_where_it_was_moved_to(spark, run, tmp_path):
    p, out = run
    shutil.copytree(out, tmp_path / "moved")
    moved = measure(spark, str(tmp_path / "moved"), truth_file(tmp_path, p), SETTINGS)
    assert moved == measure(spark, out, truth_file(tmp_path, p), SETTINGS)


def test_without_a_truth_the_run_speaks_for_itself(spark, run):
    found = measure(spark, run[1], None, SETTINGS)
    assert found["estimates"]["recovery"] > 0.5
    assert 0 < found["estimates"]["mean_confidence"] <= 1


def test_a_folder_without_a_finished_run_is_refused(spark, tmp_path):
    with pytest.raises(InputError, match="holds no finished link run"):
        measure(spark, str(tmp_path), None, SETTINGS)


def test_reliability_bins_by_hand(spark):
    links = spark.createDataFrame(
        [("a", "x", 0.95, False), ("b", "y", 0.91, False), ("c", "z", 1.0, False), ("d", "w", 0.55, False),
         ("s", "s", 1.0, True)],
        "source_id STRING, target_id STRING, confidence DOUBLE, is_seed BOOLEAN",
    )  # fmt: skip
    truth = spark.createDataFrame(
        [("a", "x"), ("b", "no"), ("c", "z"), ("s", "s")], "source_id STRING, target_id STRING"
    )
    rows = [tuple(r) for r in reliability(judged(links, truth), 10).collect()]
    assert rows == [(5, 1, pytest.approx(0.55), 0), (9, 3, pytest.approx(2.86), 2)]
