"""Consensus runs on generated clouds with known truth: real Spark, real Delta."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from deltalake import DeltaTable

from clouds import problem
from in_process_consensus import consensus_in_process
from link_runs import (
    CONSENSUS,
    consensus,
    found_pairs,
    lay_out,
    links_in_process,
    quality,
    read_links,
    same_clouds,
    stop_before_iteration,
)
from veclink.errors import InputError
from veclink.runs.answer import outcome
from veclink.runs.link import link


def test_links_are_right_complete_and_as_sure_as_they_say(consensus_run):
    p, request, report = consensus_run
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


def test_spark_gives_the_links_of_the_loop_in_one_process(consensus_run):
    p, request, _ = consensus_run
    assert found_pairs(request.out) == pytest.approx(links_in_process(p, CONSENSUS))


@pytest.mark.parametrize(
    "change",
    ["start=plain", "evidence=votes", "evidence=free", "view_kind=ridge", "view_kind=hash", "window=1", "growth=1000",
     "audit_limit=1", "start_maps=1"],
)  # fmt: skip
def test_every_part_can_be_switched_off_and_the_rest_still_links(change):
    p = problem(600, seeds=30, draw=3)
    settings = consensus(f"consensus.{change}")
    answer = consensus_in_process(p.source, p.target, p.seeds, settings).answer()
    rows = zip(answer.promoted["source_row"].to_pylist(), answer.promoted["target_row"].to_pylist(), strict=True)
    precision, recall = quality(p, set(rows))
    assert answer.taken_off
    assert precision > 0.8
    assert recall > 0.7  # distances to anchors are the weakest view


def test_clouds_that_are_rotated_give_the_same_links():
    p, rng = problem(700, draw=4), np.random.default_rng(0)
    found = []
    for source, target in ((p.source, p.target), tuple(rotated(x, rng) for x in (p.source, p.target))):
        links = consensus_in_process(source, target, p.seeds, CONSENSUS).answer().promoted
        pairs = zip(links["source_row"].to_pylist(), links["target_row"].to_pylist(), strict=True)
        found.append(dict(zip(pairs, links["confidence"].to_pylist(), strict=True)))
    one, other = found
    assert len(one) > 300
    both = one.keys() & other.keys()  # rounding decides a few close calls
    assert len(both) >= 0.99 * len(one.keys() | other.keys())
    assert np.mean([abs(one[pair] - other[pair]) for pair in both]) < 0.005


def rotated(rows, rng):
    return (rows @ np.linalg.qr(rng.standard_normal((rows.shape[1],) * 2))[0]).astype(np.float32)


def test_links_show_what_speaks_for_them(consensus_run):
    rows = read_links(consensus_run[1].out).to_pylist()
    for r in rows:
        if not r["is_seed"]:
            assert 0 < r["votes"] <= r["opportunities"]
            assert r["margin"] == pytest.approx(min(r["source_lead"], r["target_lead"]))
            assert -1 <= r["source_density"] <= 1
            assert 0.5 <= r["confidence"] <= 1


def test_every_round_judges_all_rows_equally_often_and_asks_its_anchors_alone(consensus_run):
    rows = DeltaTable(f"{consensus_run[1].out}/judged").to_pyarrow_table().to_pylist()
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


def test_bad_seeds_are_named_and_do_no_harm(spark, tmp_path, consensus_run, monkeypatch):
    p, good, before = consensus_run
    spoilt, names = with_bad_seeds(p)
    request = replace(same_clouds(tmp_path, good), seeds=lay_out(tmp_path, spoilt).seeds)
    stop_before_iteration(monkeypatch, 3)  # the audit must survive a stop
    with pytest.raises(KeyboardInterrupt):
        link(spark, request, CONSENSUS)
    monkeypatch.undo()
    report = link(spark, request, CONSENSUS)
    assert {d["source_id"] for d in report["seeds_dropped"]} == names
    assert all(max(d["source_rank"], d["target_rank"]) > 0.03 for d in report["seeds_dropped"])
    assert (report["seeds"], before["seeds"], before["seeds_dropped"]) == (17, 20, [])
    found = set(found_pairs(request.out))
    # The dropped seeds' objects are free: their right partners are found.
    assert sum((a, p.truth[a]) in found for a in (int(n[1:]) for n in names)) >= 2
    assert not any(r["is_seed"] and r["source_id"] in names for r in read_links(request.out).to_pylist())
    spoilt_quality, clean_quality = (np.array(quality(p, s)) for s in (found, set(found_pairs(good.out))))
    assert np.abs(spoilt_quality - clean_quality).max() < 0.02


def test_a_wish_beyond_reach_leaves_no_link_but_the_run_took_off(consensus_run):
    p, _, _ = consensus_run
    seeds = np.array(sorted(p.seeds.tolist()))
    loop = consensus_in_process(p.source, p.target, seeds, consensus("consensus.min_confidence=1"))
    answer = loop.answer()
    assert (len(answer.promoted), answer.taken_off, answer.estimates) == (0, True, {})
    assert "no pair is as sure as" in outcome(loop, answer)["exit_reason"]
    assert answer.recovery.pairs > 0.8


def test_a_wished_precision_leaves_out_the_least_sure(spark, tmp_path, consensus_run):
    request, before = same_clouds(tmp_path, consensus_run[1]), list(found_pairs(consensus_run[1].out).values())
    wish = round((np.mean(before) + np.max(before)) / 2, 4)  # what the run has does not reach it
    report = link(spark, request, consensus(f"consensus.target_precision={wish}"))
    confidence = list(found_pairs(request.out).values())
    assert np.mean(confidence) >= wish
    assert 0 < len(confidence) < len(before)
    assert min(confidence) >= max(c for c in before if c not in set(confidence))
    assert report["estimates"]["precision"] >= wish
    assert json.loads(json.dumps(report)) == report


def test_a_run_without_seeds_has_to_be_asked_for(spark, tmp_path, consensus_run):
    with pytest.raises(InputError, match="or neither with"):
        link(spark, replace(same_clouds(tmp_path, consensus_run[1]), seeds=None), CONSENSUS)
