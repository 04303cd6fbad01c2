"""How a consensus run starts, with seeds and without, and when it is called off."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clouds import Problem, unit
from in_process_consensus import consensus_in_process
from link_runs import consensus, found_pairs, lay_out, quality, read_links, unrelated
from veclink.errors import NotTakenOff
from veclink.runs.answer import outcome
from veclink.runs.consensus import start_rounds
from veclink.runs.link import link
from veclink.runs.loop import Iteration, row_pairs
from veclink.settings import load_settings


def rounds_of(*anchors, agreement=0.3):
    """A history in which so many anchors stood after each round."""
    return [Iteration(i + 1, 100, 2, 0, 0, 0, 0.0, n, agreement, 0.0) for i, n in enumerate(anchors)]


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


def test_next_to_nothing_shared_is_called_off_though_links_and_seeds_are_found_again():
    """40 of 1,000 normal vectors are on both sides, half of them seeds."""
    rng = np.random.default_rng(1)
    objects = rng.normal(size=(1_960, 32)) * (1 + np.arange(32)) ** -0.3
    sides = []
    for first, dim in ((0, 32), (960, 48)):
        seen = objects[first : first + 1_000] @ np.linalg.qr(rng.normal(size=(dim, 32)))[0].T
        sides.append(unit((seen + 0.1 * seen.std() * rng.normal(size=seen.shape)).astype(np.float32)))
    seeds = np.stack([np.arange(960, 980), np.arange(20)], axis=1)
    loop = consensus_in_process(*sides, seeds, load_settings())
    answer = loop.answer()
    assert not answer.taken_off
    right = np.isin(row_pairs(answer.promoted)[:, 0] - 960, range(40)) & (
        np.diff(row_pairs(answer.promoted))[:, 0] == -960
    )
    assert right.mean() < 0.3
    assert np.mean(answer.promoted["confidence"]) > 0.7
    assert answer.recovery.seeds > 0.9
    assert answer.recovery.pairs > 0.75 * answer.recovery.seeds
    assert answer.recovery.ahead > 0.8
    assert "a seed is better than a pair" in outcome(loop, answer)["exit_reason"]


SCIFACT = Path(__file__).parents[1] / "data" / "scifact.npz"


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


UNPAIRED_CHANGES = ["link.csls_k=50", "consensus.start=unpaired", "consensus.unpaired_maps=2"]
UNPAIRED = consensus(*UNPAIRED_CHANGES)


def test_like_encoders_are_linked_without_any_seed(spark, tmp_path):
    p, request = no_seeds(tmp_path, ("minilm", "mpnet"), 1_000)
    report = link(spark, request, UNPAIRED)
    precision, recall = quality(p, set(found_pairs(request.out)))
    assert precision > 0.93
    assert recall > 0.93
    assert report["seeds"] == 0


def test_maps_of_unlike_encoders_disagree_and_the_run_is_called_off(spark, tmp_path):
    _, request = no_seeds(tmp_path, ("minilm", "use"), 400)
    with pytest.raises(NotTakenOff) as stopped:
        link(spark, request, UNPAIRED)
    assert stopped.value.report["links"] == 0
    assert stopped.value.report["rounds"] == 1


def test_maps_that_agree_on_too_little_call_a_run_off_however_right_they_are(spark, tmp_path):
    _, request = no_seeds(tmp_path, ("minilm", "mpnet"), 300)
    settings = [*UNPAIRED_CHANGES, "consensus.agreement_min=1"]
    with pytest.raises(NotTakenOff) as stopped:
        link(spark, request, consensus(*settings))
    assert (stopped.value.report["links"], stopped.value.report["rounds"]) == (0, 1)
    assert "starts agree on too little" in stopped.value.report["exit_reason"]
    assert "precision" not in stopped.value.report["estimates"]


def test_unrelated_clouds_are_called_off_though_their_links_support_each_other(spark, tmp_path):
    request = unrelated(tmp_path, 400)
    settings = consensus("link.seed_check=off", "consensus.rounds_max=4")
    with pytest.raises(NotTakenOff, match="did not take off") as stopped:
        link(spark, request, settings)
    assert stopped.value.report["links"] == 0
    assert all(r["is_seed"] for r in read_links(request.out).to_pylist())
