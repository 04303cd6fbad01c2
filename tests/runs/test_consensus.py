"""Consensus runs on generated clouds with known truth: real Spark, real Delta."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from deltalake import DeltaTable

from clouds import Problem, problem, two_warps, unit
from in_process_consensus import consensus_in_process
from link_runs import found_pairs, lay_out, quality, read_links, same_clouds, stop_before_iteration
from veclink.errors import InputError, NotTakenOff
from veclink.runs.consensus import Consensus, start_rounds
from veclink.runs.link import link
from veclink.runs.loop import Iteration, Recovery
from veclink.settings import load_settings

SCIFACT = Path(__file__).parents[1] / "data" / "scifact.npz"
QUICK = ["link.csls_k=20", "link.stop_rounds=1", "consensus.window=2", "consensus.views=4"]
SETTINGS = load_settings(overrides=QUICK)


@pytest.fixture(scope="module")
def run(spark, tmp_path_factory):
    p = problem(1_000, draw=2)
    request = lay_out(tmp_path_factory.mktemp("consensus"), p)
    return p, request, link(spark, request, SETTINGS)


def test_links_are_right_complete_and_as_sure_as_they_say(run):
    p, request, report = run
    found = found_pairs(request.out)
    precision, recall = quality(p, set(found))
    assert precision > 0.9
    assert recall > 0.9
    assert abs(np.mean(list(found.values())) - precision) < 0.05
    assert report["estimates"]["precision"] == pytest.approx(np.mean(list(found.values())))
    estimates = report["estimates"]
    assert abs(estimates["shared"] - (len(p.truth) - len(p.seeds))) < 0.1 * len(p.truth)
    low, high = estimates["precision_interval"]
    assert low <= estimates["precision"] <= high
    assert low - 0.02 <= precision <= high + 0.02


def test_spark_gives_the_links_of_the_loop_in_one_process(run):
    p, request, _ = run
    seeds = np.array(sorted(p.seeds.tolist()))  # in the order of their ids, as a run reads them
    answer = consensus_in_process(p.source, p.target, seeds, SETTINGS).answer().promoted
    rows = zip(answer["source_row"].to_pylist(), answer["target_row"].to_pylist(), strict=True)
    expected = dict(zip(rows, answer["confidence"].to_pylist(), strict=True))
    assert found_pairs(request.out) == pytest.approx(expected)


@pytest.mark.parametrize(
    "change",
    ["start=plain", "evidence=votes", "evidence=free", "view_kind=ridge", "view_kind=hash", "window=1", "growth=1000",
     "audit_limit=1", "start_maps=1"],
)  # fmt: skip
def test_every_part_can_be_switched_off_and_the_rest_still_links(change):
    p = problem(600, seeds=30, draw=3)
    settings = load_settings(overrides=[*QUICK, f"consensus.{change}"])
    answer = consensus_in_process(p.source, p.target, p.seeds, settings).answer()
    rows = zip(answer.promoted["source_row"].to_pylist(), answer.promoted["target_row"].to_pylist(), strict=True)
    precision, recall = quality(p, set(rows))
    assert answer.taken_off
    assert precision > 0.8
    assert recall > 0.7  # distances to anchors are the weakest view


def test_links_show_what_speaks_for_them(run):
    rows = read_links(run[1].out).to_pylist()
    for r in rows:
        if not r["is_seed"]:
            assert 0 < r["votes"] <= r["opportunities"]
            assert r["margin"] == pytest.approx(min(r["source_lead"], r["target_lead"]))
            assert -1 <= r["source_density"] <= 1
            assert 0.5 <= r["confidence"] <= 1


def test_every_round_judges_all_rows_equally_often_and_asks_its_anchors_alone(run):
    rows = DeltaTable(f"{run[1].out}/judged").to_pyarrow_table().to_pylist()
    last = max(r["round"] for r in rows)
    anchors = [r for r in rows if r["round"] == last - 1 and r["promoted"]]
    now = [r for r in rows if r["round"] == last]
    judged = [r for r in now if r["role"] == "candidate"]
    assert {r["opportunities"] for r in judged} == {1}  # of 4 views, 3 hold a row
    assert {r["role"] for r in now} >= {"candidate", "no_target", "no_source"}
    pairs = {(r["source_row"], r["target_row"]) for r in anchors}
    for role, side in (("no_target", 0), ("no_source", 1)):
        asked = [(r["source_row"], r["target_row"]) for r in now if r["role"] == role]
        assert {pair[side] for pair in asked} <= {pair[side] for pair in pairs}
        assert not set(asked) & pairs
    assert all(r["confidence"] == 0 for r in now if r["role"] != "candidate")


def with_bad_seeds(p):
    """The same problem with one wrong seed and two whose partners are swapped, and their ids."""
    rows = p.seeds.copy()
    rows[3, 1] = next(t for t in range(len(p.target)) if t not in set(rows[:, 1].tolist()))
    rows[[7, 8], 1] = rows[[8, 7], 1]
    return replace(p, seeds=rows), {f"a{rows[i, 0]:05d}" for i in (3, 7, 8)}


def test_bad_seeds_are_named_and_do_no_harm(spark, tmp_path, run, monkeypatch):
    p, good, before = run
    spoilt, names = with_bad_seeds(p)
    request = replace(same_clouds(tmp_path, good), seeds=lay_out(tmp_path, spoilt).seeds)
    stop_before_iteration(monkeypatch, 3)  # the audit must survive a stop
    with pytest.raises(KeyboardInterrupt):
        link(spark, request, SETTINGS)
    monkeypatch.undo()
    report = link(spark, request, SETTINGS)
    assert {d["source_id"] for d in report["seeds_dropped"]} == names
    assert all(max(d["source_rank"], d["target_rank"]) > 0.03 for d in report["seeds_dropped"])
    assert (report["seeds"], before["seeds"], before["seeds_dropped"]) == (17, 20, [])
    found = set(found_pairs(request.out))
    # The dropped seeds' objects are free: their right partners are found.
    assert sum((a, p.truth[a]) in found for a in (int(n[1:]) for n in names)) >= 2
    assert not any(r["is_seed"] and r["source_id"] in names for r in read_links(request.out).to_pylist())
    spoilt_quality, clean_quality = (np.array(quality(p, s)) for s in (found, set(found_pairs(good.out))))
    assert np.abs(spoilt_quality - clean_quality).max() < 0.02


def test_links_do_not_depend_on_the_number_of_partitions(spark, tmp_path, run):
    found = []
    for tasks in (1, 7, 64):
        request = same_clouds(tmp_path / str(tasks), run[1])
        link(spark, request, load_settings(overrides=[*QUICK, f"spark.partitions={tasks}", "consensus.rounds_max=3"]))
        found.append(read_links(request.out))
    assert found[0].num_rows > 300
    assert found[1].equals(found[0])
    assert found[2].equals(found[0])


def test_a_run_stopped_between_the_two_commits_of_a_round_goes_on_to_the_same_links(spark, tmp_path, run, monkeypatch):
    request = same_clouds(tmp_path, run[1])
    stop_before_iteration(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        link(spark, request, SETTINGS)
    monkeypatch.undo()
    link(spark, request, SETTINGS)
    assert read_links(request.out).equals(read_links(run[1].out))


def test_a_run_whose_tables_tell_of_different_rounds_does_not_go_on(spark, tmp_path, run, monkeypatch):
    request = same_clouds(tmp_path, run[1])
    stop_before_iteration(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        link(spark, request, SETTINGS)
    monkeypatch.undo()
    DeltaTable(f"{request.out}/judged").delete("round = 2")
    with pytest.raises(InputError, match=r"0 candidates of round 2, [1-9][0-9]* expected"):
        link(spark, request, SETTINGS)


@pytest.mark.parametrize(
    ("pairs", "seeds", "enough"),
    [
        (0.54, 0.52, True),  # unlike encoders: as many links as seeds are found again
        (0.60, 0.90, False),  # links that are found much less often than right pairs are
        (0.95, 0.05, False),  # links that only support each other
        (0.35, 0.30, False),
        (0.80, None, True),
        (0.70, None, False),
        (None, None, False),  # too few links to test
    ],
)
def test_a_run_took_off_if_its_links_are_found_again_as_seeds_are(pairs, seeds, enough):
    loop = SimpleNamespace(_how=SETTINGS.consensus)
    assert Consensus._enough(loop, Recovery(pairs, seeds)) == enough


def rounds_of(*anchors, agreement=0.3):
    """A history in which so many anchors stood after each round."""
    return [Iteration(i + 1, 2, 0, 0, 0, 0.0, n, agreement, 0.0) for i, n in enumerate(anchors)]


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([], (0, False)),
        (rounds_of(100, agreement=0.9), (1, True)),  # maps that agree need no second start
        (rounds_of(100, agreement=0.9) + rounds_of(300, 400), (1, True)),
        (rounds_of(100), (1, False)),
        (rounds_of(100, 150), (2, False)),
        (rounds_of(100, 150, 160), (3, True)),  # grown by less than a tenth
        (rounds_of(100, 150, 160, 900), (3, True)),
        (rounds_of(10, 20, 40, 80), (4, True)),  # as many as there may be
    ],
)
def test_starts_repeat_until_maps_agree_or_anchors_stop_growing(history, expected):
    how = load_settings(overrides=["consensus.start_rounds_max=4"]).consensus
    assert start_rounds(history, how) == expected


def test_other_starts_are_never_repeated():
    for start in ("unpaired", "plain"):
        how = load_settings(overrides=[f"consensus.start={start}"]).consensus
        assert start_rounds(rounds_of(100), how) == (1, True)


def test_a_start_that_begins_again_survives_a_stop(spark, tmp_path, run, monkeypatch):
    settings = load_settings(overrides=[*QUICK, "consensus.start_agreement=1", "consensus.start_rounds_max=2"])
    links = []
    for name, stop in (("whole", None), ("stopped", 2)):
        request = same_clouds(tmp_path / name, run[1])
        if stop:
            stop_before_iteration(monkeypatch, stop)
            with pytest.raises(KeyboardInterrupt):
                link(spark, request, settings)
            monkeypatch.undo()
        link(spark, request, settings)
        links.append(read_links(request.out))
    assert links[0].equals(links[1])
    views = DeltaTable(f"{tmp_path}/whole/out/iterations").to_pyarrow_table().sort_by("round")["views"].to_pylist()
    assert views[:3] == [2, 2, 4]  # two starts of two maps, then views


def no_seeds(folder, encoders, objects):
    """Real encoders of SciFact, half of the objects on both sides; the request names no seeds."""
    stored = np.load(SCIFACT)
    a, b = (unit(stored[e].astype(np.float32)) for e in encoders)
    chosen = np.random.default_rng(3).permutation(len(a))[:objects]
    third = objects // 4
    left, right = chosen[: 3 * third], chosen[third:]
    truth = {third + i: i for i in range(2 * third)}
    p = Problem(a[left], b[right], truth, np.empty((0, 2), np.int64))
    return p, replace(lay_out(folder, p), seeds=None)


UNPAIRED = load_settings(overrides=[*QUICK, "link.csls_k=50", "consensus.start=unpaired"])


def test_like_encoders_are_linked_without_any_seed(spark, tmp_path):
    p, request = no_seeds(tmp_path, ("minilm", "mpnet"), 1_500)
    report = link(spark, request, UNPAIRED)
    precision, recall = quality(p, set(found_pairs(request.out)))
    assert precision > 0.93
    assert recall > 0.93
    assert report["seeds"] == 0


def test_maps_of_unlike_encoders_disagree_and_the_run_is_called_off(spark, tmp_path):
    _, request = no_seeds(tmp_path, ("minilm", "use"), 800)
    with pytest.raises(NotTakenOff) as stopped:
        link(spark, request, UNPAIRED)
    assert stopped.value.report["links"] == 0
    assert stopped.value.report["rounds"] == 1


def test_maps_that_agree_on_too_little_call_a_run_off_however_right_they_are(spark, tmp_path):
    _, request = no_seeds(tmp_path, ("minilm", "mpnet"), 800)
    settings = load_settings(overrides=[*QUICK, "consensus.start=unpaired", "consensus.agreement_min=1"])
    with pytest.raises(NotTakenOff) as stopped:
        link(spark, request, settings)
    assert (stopped.value.report["links"], stopped.value.report["rounds"]) == (0, 1)
    assert "starts agree on too little" in stopped.value.report["exit_reason"]
    assert "precision" not in stopped.value.report["estimates"]


def test_a_wish_beyond_reach_leaves_no_link_but_the_run_took_off(run):
    p, _, _ = run
    seeds = np.array(sorted(p.seeds.tolist()))
    loop = consensus_in_process(
        p.source, p.target, seeds, load_settings(overrides=[*QUICK, "consensus.min_confidence=1"])
    )
    answer = loop.answer()
    assert (len(answer.promoted), answer.taken_off, answer.estimates) == (0, True, {})
    assert answer.recovery.pairs > 0.8


def test_unrelated_clouds_are_called_off_though_their_links_support_each_other(spark, tmp_path):
    rng = np.random.default_rng(5)
    a, _ = two_warps(400, (24, 24), 0.05, rng)
    b, _ = two_warps(400, (24, 24), 0.05, rng)
    request = lay_out(tmp_path, Problem(a, b, {}, np.array([[i, i] for i in range(15)])))
    settings = load_settings(overrides=[*QUICK, "link.seed_check=off", "consensus.rounds_max=6"])
    with pytest.raises(NotTakenOff, match="did not take off") as stopped:
        link(spark, request, settings)
    assert stopped.value.report["links"] == 0
    assert all(r["is_seed"] for r in read_links(request.out).to_pylist())


def test_a_run_without_seeds_has_to_be_asked_for(spark, tmp_path, run):
    with pytest.raises(InputError, match="or neither with"):
        link(spark, replace(same_clouds(tmp_path, run[1]), seeds=None), SETTINGS)


def test_a_wished_precision_leaves_out_the_least_sure(spark, tmp_path, run):
    request, before = same_clouds(tmp_path, run[1]), list(found_pairs(run[1].out).values())
    wish = round((np.mean(before) + np.max(before)) / 2, 4)  # what the run has does not reach it
    report = link(spark, request, load_settings(overrides=[*QUICK, f"consensus.target_precision={wish}"]))
    confidence = list(found_pairs(request.out).values())
    assert np.mean(confidence) >= wish
    assert 0 < len(confidence) < len(before)
    assert min(confidence) >= max(c for c in before if c not in set(confidence))
    assert report["estimates"]["precision"] >= wish
    assert json.loads(json.dumps(report)) == report
