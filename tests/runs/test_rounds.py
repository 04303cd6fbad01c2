"""The loop alone, on prepared clouds: readings of the posterior, partitions, and the loop in one process."""

from __future__ import annotations

import numpy as np
import pytest
from deltalake import DeltaTable

from clouds import problem
from in_process import link_in_process
from link_runs import lay_out, published
from veclink import tables
from veclink.backends import Engine
from veclink.kernels.csls import list_length
from veclink.runs import seeds as seed_reader
from veclink.runs.prepare import prepare
from veclink.runs.progress import Quiet
from veclink.runs.record import RUNNING, Inputs, Record
from veclink.runs.rounds import Rounds
from veclink.settings import load_settings
from veclink.shards import Shard

PROBLEM = problem(300, seeds=8, draw=4)
SEEDS = np.array(sorted(PROBLEM.seeds.tolist()))  # in the order of their ids, as a run reads them


@pytest.fixture(scope="module")
def world(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rounds")
    request = lay_out(folder, PROBLEM)
    settings = load_settings()
    clouds = tuple(
        prepare(spark, at, f"{folder}/{i}", settings) for i, at in enumerate((request.source, request.target))
    )
    shards = tuple(
        Shard(tuple(tables.files(tables.read(spark, f"{c.folder}/points"))), c.points, c.dim, str(folder))
        for c in clouds
    )
    pairs = seed_reader.read_pairs(spark, request.seeds, "seeds")
    return shards, seed_reader.from_pairs(spark, pairs, clouds, settings.link).anchors


def run(spark, world, out, choice, tasks=None):
    shards, seeds = world
    settings = published("link.rounds_max_small=2", "link.stop_rounds=9", *choice)
    link = settings.link
    k = list_length(link.csls_k, *[s.rows for s in shards])
    record = Record("key", "writer", RUNNING, Inputs("", "", {}, []), settings.model_dump_json(), {})
    rounds = Rounds(spark, str(out), record, shards, seeds, Engine("faiss", 1, k, link.bandwidth, tasks))
    rounds.run(Quiet())
    return rounds, link


def pairs_of(rounds):
    rows = rounds.promoted.to_pylist()
    return {(r["source_row"], r["target_row"]): r["confidence"] for r in rows}


@pytest.mark.parametrize(
    "choice",
    [
        ["link.posterior_update=proposed_pairs", "link.evidence=all_views"],
        ["link.posterior_update=all_pairs", "link.evidence=all_views"],
        ["link.posterior_update=proposed_pairs", "link.evidence=out_of_bag"],
        ["link.posterior_update=all_pairs", "link.evidence=out_of_bag", "link.bandwidth=anchors"],
    ],
)
def test_every_reading_gives_the_links_of_the_loop_in_one_process(spark, world, tmp_path, choice):
    rounds, link = run(spark, world, tmp_path, choice)
    expected = link_in_process(PROBLEM.source, PROBLEM.target, SEEDS, link)
    assert len(pairs_of(rounds)) > 20
    assert pairs_of(rounds) == pytest.approx(expected.anchors)
    stored = DeltaTable(f"{tmp_path}/iterations").to_pyarrow_table().sort_by("round").to_pylist()
    assert [(r["pairs_proposed"], r["threshold"], r["anchors"]) for r in stored] == expected.rounds
    assert rounds.recovery().pairs == pytest.approx(expected.recovery)


def test_links_do_not_depend_on_the_number_of_partitions(spark, world, tmp_path):
    tables_of = {}
    for tasks in (None, 1, 7, 64):
        rounds, _ = run(spark, world, tmp_path / str(tasks), [], tasks)
        tables_of[tasks] = rounds.promoted
    assert all(t.equals(tables_of[None]) for t in tables_of.values())
    assert tables_of[None].num_rows > 20
