"""Links of large generated clouds: time and bytes by step, memory by process, and the truth.

    python -m bench.scale --rows 50000,100000 [--noise .4] [--executors 2] [--preset reference] [--set key=value ...]

Run in `tests`. Each size is written (bench.large_clouds), linked and measured by the command line of a process of its
own, and removed. --executors: JVMs of one core each beside the driver (Spark's local-cluster); 0: all in one JVM.
Figures are stored by (rows, noise, draw, preset, executors, settings); `--print` shows what is stored.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from bench import spark_events
from bench.evidence import keep, stored
from bench.large_clouds import Law, write
from bench.memory import DRIVER, Peak
from veclink.kernels.judge import score

NAME = "scale"
SEEDS, OVERLAP = 30, 0.3
STEPS = ("prepare", "fit", "homes", "crowds", "matches", "propose", "audit", "links", spark_events.REST)


@dataclass(frozen=True)
class Case:
    """One line of the table. settings: space between."""

    rows: int
    noise: float
    draw: int
    preset: str
    executors: int
    settings: str

    @property
    def master(self) -> str:
        """Workers of one core, with room for an executor's JVM each."""
        return f"local-cluster[{self.executors},1,1024]" if self.executors else "local[*]"


def run(case: Case, folder: Path) -> dict[str, Any]:
    """Link one pair of clouds and say what it took."""
    law = Law(case.rows, OVERLAP, case.noise, case.draw)
    write(folder / "clouds", law, SEEDS)
    events, conf, out = folder / "events", folder / "conf", folder / "out"
    events.mkdir()
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(spark_events.DEFAULTS.format(folder=events))
    clouds = folder / "clouds"
    command = [sys.executable, "-m", "veclink.cli", "link", "--json", "--out", str(out), "--preset", case.preset]
    for option in ("source", "target"):
        command += [f"--{option}", str(clouds / option)]
    command += ["--seeds", str(clouds / "seeds.csv"), "--set", f"spark.master={case.master}"]
    for setting in [f"spark.work_dir={folder / 'shards'}", *case.settings.split()]:
        command += ["--set", setting]
    environment = {**os.environ, "SPARK_CONF_DIR": str(conf)}
    begun = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    with Peak(process.pid) as peak:
        said = process.communicate()[0]
    seconds = time.perf_counter() - begun
    if process.returncode:
        raise SystemExit(f"veclink link ended with exit code {process.returncode}")
    report = json.loads(said.splitlines()[-1])
    steps = {name: asdict(cost) for name, cost in spark_events.costs(events).items()}
    return {
        **asdict(case),
        "seconds": seconds,
        "steps": steps,
        "own": dict(peak.own),
        "all": dict(peak.all),
        "rounds": _rounds(out),
        "estimates": {k: report.get(k) for k in ("estimates", "recovery", "seeds_ahead")},
        **_judged(out, law),
    }


def _rounds(out: Path) -> list[dict[str, Any]]:
    names = ["round", "sources", "views", "anchors", "pairs_proposed", "seconds"]
    table = pq.read_table(sorted((out / "iterations").glob("*.parquet")), columns=names)
    return sorted(table.to_pylist(), key=lambda r: r["round"])


def _judged(out: Path, law: Law) -> dict[str, float]:
    """Links against the law's truth, seeds not among them."""
    links = pq.read_table(sorted((out / "links").glob("*.parquet")), columns=["source_id", "target_id", "is_seed"])
    links = links.filter(~np.asarray(links["is_seed"]))
    truth = dict(zip(law.names(0)[: law.shared].tolist(), law.names(1)[: law.shared].tolist(), strict=True))
    pairs = zip(links["source_id"].to_pylist(), links["target_id"].to_pylist(), strict=True)
    right = sum(truth.get(a) == b for a, b in pairs)
    return asdict(score(right, links.num_rows, law.shared - SEEDS))


def table(figures: list[dict[str, Any]]) -> list[str]:
    """All that is stored, a line each, and how the time grows with the rows."""
    head = ["rows", "noise", "preset", "executors", "settings", "seconds", *STEPS, "driver GB", "executor GB"]
    head += ["shuffled bytes a row in the loop", "precision", "recall", "F1"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for line in figures:
        steps, own = line["steps"], line["own"]
        executors = [size for role, size in line["all"].items() if role != DRIVER]
        loop = sum(cost["shuffled"] for name, cost in steps.items() if name != "prepare")
        cells = [f"{line['rows']:,}", line["noise"], line["preset"], line["executors"], line["settings"]]
        cells += [f"{line['seconds']:.0f}", *(f"{steps[s]['seconds']:.0f}" if s in steps else "" for s in STEPS)]
        cells += [f"{own[DRIVER] / 1e9:.2f}", f"{max(executors) / 1e9:.2f}" if executors else ""]
        cells += [f"{loop / line['rows']:.0f}", *(f"{line[k]:.3f}" for k in ("precision", "recall", "f1"))]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    kinds = {(x["noise"], x["preset"], x["executors"], x["settings"]) for x in figures}
    for kind in sorted(kinds, key=str):
        same = [x for x in figures if (x["noise"], x["preset"], x["executors"], x["settings"]) == kind]
        if len({x["rows"] for x in same}) > 1:
            slope = np.polyfit(np.log([x["rows"] for x in same]), np.log([x["seconds"] for x in same]), 1)[0]
            lines.append(f"{kind}: seconds grow as rows ** {slope:.2f} over {len(same)} sizes")
    return lines


def main() -> None:
    """Run and store some cases, and print all that is stored."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=lambda text: [int(x) for x in text.split(",")], default=[])
    parser.add_argument("--noise", type=float, default=0.4)
    parser.add_argument("--draw", type=int, default=0)
    parser.add_argument("--preset", default="consensus")
    parser.add_argument("--executors", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--print", action="store_true", help="run nothing")
    args = parser.parse_args()
    for rows in [] if args.print else args.rows:
        case = Case(rows, args.noise, args.draw, args.preset, args.executors, " ".join(args.settings))
        folder = Path(tempfile.mkdtemp(prefix="veclink-scale-"))
        try:
            line = run(case, folder)
        finally:
            shutil.rmtree(folder)
        key = asdict(case)
        others = [x for x in stored(NAME) if {k: x[k] for k in key} != key]
        keep(NAME, sorted([*others, line], key=lambda x: tuple(str(x[k]) if k != "rows" else x[k] for k in key)))
    print("\n".join(table(stored(NAME))))


if __name__ == "__main__":
    main()
