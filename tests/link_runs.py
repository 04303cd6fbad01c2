"""What tests of whole link runs share: a problem as files, quick settings, and reading the answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from clouds import Problem, two_warps
from in_process_consensus import consensus_in_process
from veclink import tables
from veclink.runs.link import LinkRequest
from veclink.runs.loop import row_pairs
from veclink.settings import Settings, load_settings

# One quiet round is enough to stop: these tests are about the machinery, not the last percent.
QUICK = ["link.csls_k=20", "link.stop_rounds=1"]


def published(*overrides: str) -> Settings:
    """Quick settings of the published loop."""
    return load_settings(preset="reference", overrides=[*QUICK, *overrides])


def consensus(*overrides: str) -> Settings:
    """Quick settings of preset consensus."""
    return load_settings(overrides=[*QUICK, "consensus.window=2", "consensus.views=4", *overrides])


SETTINGS = published()
CONSENSUS = consensus()
# Two runs that differ, one round each.
ONE, OTHER = (published("link.rounds_max_small=1", f"link.csls_k={k}") for k in (20, 10))


def stop_before_iteration(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let the run die between the two commits of a round."""
    commit = tables.append_once

    def failing(rows, location, writer, sequence):
        if location.endswith("iterations") and sequence == number:
            raise KeyboardInterrupt
        commit(rows, location, writer, sequence)

    monkeypatch.setattr(tables, "append_once", failing)


def write_cloud(path: Path, ids: list[str], rows: np.ndarray) -> str:
    vectors = pa.array(list(rows.astype(np.float32)), pa.list_(pa.float32()))
    pq.write_table(pa.table({"id": pa.array(ids, pa.string()), "vector": vectors}), path)
    return str(path)


def write_pairs(path: Path, pairs: list[tuple[str, str]]) -> str:
    path.write_text("source_id,target_id\n" + "".join(f"{a},{b}\n" for a, b in pairs))
    return str(path)


def names(prefix: str, n: int) -> list[str]:
    return [f"{prefix}{i:05d}" for i in range(n)]  # sorted as their rows are


def lay_out(folder: Path, p: Problem, order: np.random.Generator | None = None) -> LinkRequest:
    """Files of a problem; row i of a cloud has the i-th id. order: shuffles the rows of both files."""
    files = {}
    for side, rows, prefix in (("source", p.source, "a"), ("target", p.target, "b")):
        ids = names(prefix, len(rows))
        shuffled = np.arange(len(rows)) if order is None else order.permutation(len(rows))
        files[side] = write_cloud(folder / f"{side}.parquet", [ids[i] for i in shuffled], rows[shuffled])
    seeds = write_pairs(folder / "seeds.csv", [(f"a{a:05d}", f"b{b:05d}") for a, b in p.seeds.tolist()])
    return LinkRequest(files["source"], files["target"], str(folder / "out"), seeds)


def unrelated(folder: Path, points: int) -> LinkRequest:
    """Two clouds that have nothing to do with each other, and 15 made-up pairs."""
    rng = np.random.default_rng(5)
    a, b = (two_warps(points, (24, 24), 0.05, rng)[0] for _ in range(2))
    return lay_out(folder, Problem(a, b, {}, np.array([[i, i] for i in range(15)])))


def same_clouds(folder: Path, first: LinkRequest) -> LinkRequest:
    """The clouds that a first run has prepared, linked once more into another folder."""
    return LinkRequest(f"{first.out}/source", f"{first.out}/target", str(folder / "out"), first.seeds)


def read_links(out: str) -> pa.Table:
    return DeltaTable(f"{out}/links").to_pyarrow_table().sort_by("source_id")


def found_pairs(out: str) -> dict[tuple[int, int], float]:
    rows = [r for r in read_links(out).to_pylist() if not r["is_seed"]]
    return {(int(r["source_id"][1:]), int(r["target_id"][1:])): r["confidence"] for r in rows}


def links_in_process(p: Problem, settings: Settings) -> dict[tuple[int, int], float]:
    """What a consensus run should find: links and confidences of the loop in one process."""
    seeds = np.array(sorted(p.seeds.tolist()))  # in the order of their ids, as a run reads them
    answer = consensus_in_process(p.source, p.target, seeds, settings).answer().promoted
    return dict(zip(map(tuple, row_pairs(answer).tolist()), answer["confidence"].to_pylist(), strict=True))


def quality(p: Problem, pairs: set[tuple[int, int]]) -> tuple[float, float]:
    right = sum(p.truth.get(a) == b for a, b in pairs)
    return right / max(len(pairs), 1), right / (len(p.truth) - len(p.seeds))
