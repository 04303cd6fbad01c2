"""What loops are worth: three encoders of the same texts, links of each pair judged by those of the other two.

    python -m bench.cycles [--data FOLDER] [--draws 101] [--workers 1]

Run in `tests`. An eighth of the objects is in all three clouds, an eighth in each two of them, a sixth in each alone:
any two clouds share .3 of their union. 30 known pairs for each pair of clouds, drawn apart; they count in no figure.
The links come from `consensus` in one process (in_process_consensus.py). Results are kept in results/cycles.json.

Printed by pair of clouds, before and after the loops: precision, recall and F1 of the links with a confidence of at
least .5, expected calibration error (and what it would be by chance, were every confidence right), mean squared error
(Brier 1950); then the precision of suggested links, and F1 with those of at least .5 added.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.evidence import keep, stored
from bench.quality import options_parser
from in_process_consensus import consensus_in_process
from link_loops import find_loops
from veclink.kernels.cycles import Loops, judge
from veclink.kernels.judge import expected_calibration_error, score
from veclink.kernels.posterior import one_to_one
from veclink.runs.loop import row_pairs
from veclink.settings import load_settings

ENCODERS = ("minilm", "mpnet", "use")
PAIRS = list(itertools.combinations(range(3), 2))
SEEDS = 30


@dataclass(frozen=True)
class Cut:
    """clouds: unit rows. objects: what each row is. seeds: by pair of clouds, (s, 2) rows."""

    clouds: list[np.ndarray]
    objects: list[np.ndarray]
    seeds: dict[tuple[int, int], np.ndarray]

    def right(self, pair: tuple[int, int], rows: np.ndarray) -> np.ndarray:
        """(n,) whether pairs of rows are one object."""
        return self.objects[pair[0]][rows[:, 0]] == self.objects[pair[1]][rows[:, 1]]

    def shared(self, pair: tuple[int, int]) -> int:
        """True pairs without the seeds."""
        return len(np.intersect1d(self.objects[pair[0]], self.objects[pair[1]])) - len(self.seeds[pair])


def cut(folder: Path, draw: int) -> Cut:
    """Three clouds of one draw, rows shuffled."""
    file = np.load(folder / "scifact.npz")
    sides = [file[e].astype(np.float32) for e in ENCODERS]
    sides = [s / np.linalg.norm(s, axis=1, keepdims=True) for s in sides]
    rng = np.random.default_rng(draw)
    order = rng.permutation(len(sides[0]))
    eighth = len(order) // 8
    everywhere, *twos = (order[i * eighth : (i + 1) * eighth] for i in range(4))
    alone = np.array_split(order[4 * eighth :], 3)
    objects = []
    for c in range(3):
        mine = [two for pair, two in zip(PAIRS, twos, strict=True) if c in pair]
        objects.append(rng.permutation(np.concatenate([everywhere, *mine, alone[c]])))
    place = [{o: i for i, o in enumerate(side.tolist())} for side in objects]
    seeds = {}
    for (a, b), two in zip(PAIRS, twos, strict=True):
        chosen = rng.choice(np.concatenate([everywhere, two]), SEEDS, replace=False).tolist()
        seeds[a, b] = np.array([(place[a][o], place[b][o]) for o in chosen], dtype=np.int64)
    return Cut([s[o] for s, o in zip(sides, objects, strict=True)], objects, seeds)


def linked(task: tuple[Path, int, tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """(n, 2) rows and (n,) confidences of the links of one pair of clouds, seeds first with confidence 1."""
    folder, draw, (a, b) = task
    it = cut(folder, draw)
    answer = consensus_in_process(it.clouds[a], it.clouds[b], it.seeds[a, b], load_settings()).answer()
    seeds, found = it.seeds[a, b], row_pairs(answer.promoted)
    # A seed that the audit dropped can be linked to others; the seed is right here.
    free = ~np.isin(found[:, 0], seeds[:, 0]) & ~np.isin(found[:, 1], seeds[:, 1])
    confidence = answer.promoted["confidence"].to_numpy()[free]
    return np.concatenate([seeds, found[free]]), np.concatenate([np.ones(len(seeds)), confidence])


def judged(it: Cut, found: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]) -> list[dict[str, Any]]:
    """Figures of each pair of clouds."""
    links = [((a, i), (b, j)) for (a, b) in PAIRS for i, j in found[a, b][0].tolist()]
    confidence = np.concatenate([found[pair][1] for pair in PAIRS])
    loops = find_loops(links)
    verdict = judge(confidence, loops, load_settings().cycles.kappa)
    kappas = judge(confidence, loops).kappa, true_kappa(it, links, loops)
    figures = []
    for number, pair in enumerate(PAIRS):
        mine, chains = np.flatnonzero(loops.pair == number), np.flatnonzero(loops.open_pair == number)
        rows = found[pair][0]
        judged_links = confidence[mine] < 1
        right, shared = it.right(pair, rows)[judged_links], it.shared(pair)
        before, after = (c[mine][judged_links] for c in (confidence, verdict.confidence))
        ends = np.array([call(links, loops.open[i], pair) for i in chains], dtype=np.int64).reshape(-1, 2)
        sure = np.flatnonzero(verdict.suggested[chains] >= 0.5)
        sure = sure[one_to_one(ends[sure, 0], ends[sure, 1], verdict.suggested[chains][sure])]
        hits, kept = it.right(pair, ends), after >= 0.5
        counts = [int(c[mine].astype(bool).sum()) for c in loops.counts()]
        both = score(int(right[kept].sum() + hits[sure].sum()), int(kept.sum()) + len(sure), shared)
        figures.append({"pair": [ENCODERS[c] for c in pair], "links": len(right), "in_loops": counts,
                        "before": quality(before, right, shared), "after": quality(after, right, shared),
                        "suggested": len(sure), "suggested_right": int(hits[sure].sum()), "f1_with": both.f1,
                        "open": len(chains), "open_right": float(hits.mean()),
                        "open_mean": float(verdict.suggested[chains].mean()),
                        "kappa_learnt": kappas[0], "kappa_true": kappas[1]})  # fmt: skip
    return figures


def true_kappa(it: Cut, links: list[Any], loops: Loops) -> float:
    """Share of the chains with a wrong link that are closed."""
    right = np.array([it.objects[a][i] == it.objects[b][j] for (a, i), (b, j) in links])
    closed = 3 * int((~right[loops.closed].all(axis=1)).sum())
    broken = sum(int((~right[loops.broken[:, ends]].all(axis=1)).sum()) for ends in ([0, 1], [1, 2]))
    return closed / max(closed + broken + int((~right[loops.open].all(axis=1)).sum()), 1)


def call(links: list[Any], chain: np.ndarray, pair: tuple[int, int]) -> tuple[int, int]:
    """The rows that an open chain calls to link."""
    rows = dict(point for i in chain.tolist() for point in links[i] if point[0] in pair)
    return rows[pair[0]], rows[pair[1]]


def quality(confidence: np.ndarray, right: np.ndarray, shared: int) -> dict[str, float]:
    """Figures of links without the seeds."""
    kept = confidence >= 0.5
    found = score(int(right[kept].sum()), int(kept.sum()), shared)
    rng = np.random.default_rng(0)
    by_chance = np.mean([calibration(confidence, rng.random(len(right)) < confidence) for _ in range(200)])
    return {"precision": found.precision, "recall": found.recall, "f1": found.f1,
            "ece": calibration(confidence, right), "ece_by_chance": float(by_chance),
            "brier": float(((confidence - right) ** 2).mean())}  # fmt: skip


def calibration(confidence: np.ndarray, right: np.ndarray) -> float:
    """Expected calibration error in ten bins."""
    bins = np.minimum((confidence * 10).astype(np.int64), 9)
    sums = [np.bincount(bins, weights=w, minlength=10) for w in (np.ones(len(right)), confidence, right)]
    return expected_calibration_error(*sums)


def line(figures: list[dict[str, Any]]) -> str:
    """One printed line: means over the draws."""
    cells = [
        " -> ".join(f"{np.mean([f[when][name] for f in figures]):.3f}" for when in ("before", "after"))
        for name in ("precision", "recall", "f1", "ece", "ece_by_chance", "brier")
    ]
    count, hits, total = (sum(f[name] for f in figures) for name in ("suggested", "suggested_right", "open"))
    right = sum(f["open_right"] * f["open"] for f in figures) / max(total, 1)
    mean = sum(f["open_mean"] * f["open"] for f in figures) / max(total, 1)
    precision = f"{hits / count:.3f} of {count}" if count else "-"
    cells += [f"{mean:.2f} / {right:.2f}", precision, f"{np.mean([f['f1_with'] for f in figures]):.3f}"]
    return f"| {' - '.join(figures[0]['pair'])} | {' | '.join(cells)} |"


def main() -> None:
    """Link, judge and print; every draw is kept."""
    options = options_parser(__doc__, "101").parse_args()
    kept = {record["draw"]: record for record in stored("cycles")}
    tasks = [(options.data, draw, pair) for draw in options.draws for pair in PAIRS]
    with ProcessPoolExecutor(options.workers) as pool:
        results = list(pool.map(linked, tasks))
    for i, draw in enumerate(options.draws):
        found = dict(zip(PAIRS, results[3 * i : 3 * i + 3], strict=True))
        kept[draw] = {"draw": draw, "pairs": judged(cut(options.data, draw), found)}
    keep("cycles", list(kept.values()))
    kappas = [[round(kept[d]["pairs"][0][name], 3) for d in options.draws] for name in ("kappa_learnt", "kappa_true")]
    print(f"Draws {options.draws}; kappa learnt {kappas[0]}, true {kappas[1]}")
    print("| encoders | precision | recall | F1 | ECE | ECE by chance | Brier | open chains: mean / right | suggested: "
          "precision | F1 with them |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    for number in range(len(PAIRS)):
        print(line([kept[draw]["pairs"][number] for draw in options.draws]), flush=True)


if __name__ == "__main__":
    main()
