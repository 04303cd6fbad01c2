"""Confidence in small clouds, where decoys are few: generated clouds with known truth, all settings as they are
unless --change says otherwise.

    python -m bench.small_clouds [--draws 12] [--workers 2] [--change consensus.evidence=free]

Run in `tests`. An object is a normal vector of 32 dimensions that fade; either side sees it rotated, with noise of its
own: whatever is wrong then looks wrong, and still the number of wrong links has to be told from a few hundred decoys. A
line for each size and noise: means over the draws of precision, of what the run takes it for, of how far that is off,
and of recall; and in how many draws the interval holds it. With twins, every object of one side alone has its like
among those of the other side alone: no evidence tells them from shared ones. Nothing is kept.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from clouds import Problem, unit
from in_process_consensus import consensus_in_process
from link_runs import quality
from veclink.runs.loop import row_pairs
from veclink.settings import load_settings

LATENT, DIMS, SEEDS = 32, (32, 48), 20
# Rows a side, five eighths of them shared; noise; whether the others have twins.
CASES = [(400, 0.05, False), (400, 0.4, False), (800, 0.05, False), (400, 0.05, True)]
# How far twins lie apart, in standard deviations of a coordinate.
TWINS = 0.4


def rotated(rows: int, noise: float, twins: bool, draw: int) -> Problem:
    """Both clouds of one draw."""
    rng = np.random.default_rng(draw)
    own = rows * 3 // 8
    objects = rng.normal(size=(rows + own, LATENT)) * (1 + np.arange(LATENT)) ** -0.3
    if twins:
        objects[rows:] = objects[:own] + TWINS * objects.std() * rng.normal(size=(own, LATENT))
    sides = []
    for first, dim in zip((0, own), DIMS, strict=True):
        seen = objects[first : first + rows] @ np.linalg.qr(rng.normal(size=(dim, LATENT)))[0].T
        sides.append(unit((seen + noise * seen.std() * rng.normal(size=seen.shape)).astype(np.float32)))
    shared = np.arange(own, rows)
    seeds = rng.permutation(shared)[:SEEDS]
    truth = {int(i): int(i - own) for i in shared}
    return Problem(sides[0], sides[1], truth, np.stack([seeds, seeds - own], axis=1))


def judge(case: tuple[int, float, bool, int, list[str]]) -> tuple[float, float, float, float, bool]:
    """Precision, what it is taken for, how far off that is, recall, and whether the interval holds the precision."""
    *world, changes = case
    p = rotated(*world)
    answer = consensus_in_process(p.source, p.target, p.seeds, load_settings(overrides=changes)).answer()
    precision, recall = quality(p, set(map(tuple, row_pairs(answer.promoted).tolist())))
    low, high = answer.estimates["precision_interval"]
    taken_for = answer.estimates["precision"]
    return precision, taken_for, abs(taken_for - precision), recall, low <= precision <= high


def main() -> None:
    """Print a line for each size and noise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--change", default="", type=str.split, help="settings that differ, space between")
    options = parser.parse_args()
    print(f"| rows | noise | twins | precision | taken for | off by | recall | intervals |\n{'|---' * 8}|")
    with ProcessPoolExecutor(options.workers) as pool:
        for rows, noise, twins in CASES:
            cases = [(rows, noise, twins, draw, options.change) for draw in range(1, options.draws + 1)]
            found = np.array(list(pool.map(judge, cases)))
            means = " | ".join(f"{x:.3f}" for x in found[:, :4].mean(axis=0))
            print(f"| {rows} | {noise} | {twins} | {means} | {found[:, 4].sum():.0f}/{options.draws} |", flush=True)


if __name__ == "__main__":
    main()
