"""The quality table: presets on real embeddings with known truth, several draws of split and seeds.

    python -m bench.quality [--data FOLDER] [--draws 0,1,2,3,4] [--only scifact] [--workers 2]

Run in `tests` (the Makefile's `quality` target does). --data names a folder with `scifact.npz` and, if there,
`descriptions.npz`: arrays `ids` and one float16 array per encoder, row by row the same object. Without it the SciFact
file of this repository is used. Loops run in one process each (in_process.py, in_process_consensus.py), which gives the
links of the Spark run (tests/runs/test_rounds.py and test_consensus.py hold the two equal).

Beside the presets stands a trivial baseline: orthogonal Procrustes on the seeds, then mutual matches under CSLS.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from bench.evidence import keep, stored
from in_process import link_in_process
from in_process_consensus import consensus_in_process
from veclink.backends import faiss_cpu
from veclink.kernels.csls import mutual_matches
from veclink.kernels.judge import expected_calibration_error, score
from veclink.runs.loop import row_pairs
from veclink.settings import load_settings

HERE = Path(__file__).parent.parent / "data"
PAIRS = [("minilm", "mpnet"), ("minilm", "use"), ("mpnet", "use")]
OVERLAP = 0.3
COLUMNS = (
    *("data", "encoders", "seeds", "method", "precision", "recall", "F1"),
    *("took off", "recovery", "seeds ahead", "ECE", "intervals", "rounds", "seconds"),
)
ROW_KEYS = ("data", "source", "target", "objects", "seeds", "method", "overlap")


@dataclass(frozen=True)
class Row:
    """One line of the table, before its draws."""

    data: str
    source: str
    target: str
    objects: int
    seeds: int
    method: str
    overlap: float = 0.3
    change: str = ""  # settings, space between, that differ from the preset's


def rows(folder: Path) -> list[Row]:
    """Every line of the table."""
    scifact = [
        Row("scifact", a, b, 5183, seeds, method)
        for a, b in PAIRS
        for seeds in (15, 30)
        for method in ("procrustes", "paper", "reference", "consensus")
    ] + [Row("scifact", "minilm", "mpnet", 5183, 0, "consensus")]
    methods = ("procrustes", "paper", "reference", "consensus")
    compared = ("procrustes", "reference", "consensus")
    described = [Row("descriptions", "minilm", "mpnet", 3000, 15, m) for m in methods]
    cases = [("minilm", "mpnet", 15), ("minilm", "mpnet", 8), ("minilm", "mpnet", 0)]
    cases += [(a, "use", seeds) for a in ("minilm", "mpnet") for seeds in (30, 15)]
    described += [
        Row("descriptions", a, b, 6000, s, m) for a, b, s in cases for m in (compared if s else compared[-1:])
    ]
    described += [Row("descriptions", "minilm", "mpnet", 6000, 30, m, 0.05) for m in compared]
    return (described if (folder / "descriptions.npz").exists() else []) + scifact


def cut(folder: Path, row: Row, draw: int):
    """Two clouds, seed rows and truth by the paper's protocol (section 5.1); overlap is of the union, rows shuffled."""
    stored = np.load(folder / f"{row.data}.npz")
    sides = [stored[e].astype(np.float32) for e in (row.source, row.target)]
    sides = [s / np.linalg.norm(s, axis=1, keepdims=True) for s in sides]
    rng = np.random.default_rng(draw)
    chosen = rng.permutation(len(sides[0]))[: row.objects]
    count = round(row.overlap * len(chosen))
    shared, rest = chosen[:count], chosen[count:]
    half = len(rest) // 2
    left, right = (rng.permutation(np.concatenate([shared, part])) for part in (rest[:half], rest[half:]))
    seeds = rng.choice(shared, row.seeds, replace=False)
    place = [{o: i for i, o in enumerate(side.tolist())} for side in (left, right)]
    truth = {place[0][o]: place[1][o] for o in shared.tolist()}
    seed_rows = np.array([(place[0][o], place[1][o]) for o in seeds.tolist()], dtype=np.int64)
    return sides[0][left], sides[1][right], seed_rows, truth


def procrustes(source, target, seeds) -> dict[tuple[int, int], float]:
    """Orthogonal map fitted on the seeds (narrow side padded with zeros), mutual csls matches; every link at 0.5."""
    width = max(source.shape[1], target.shape[1])
    a, b = (np.pad(x, ((0, 0), (0, width - x.shape[1]))) for x in (source, target))
    u, _, vt = np.linalg.svd(a[seeds[:, 0]].T @ b[seeds[:, 1]])
    found = mutual_matches(np.ascontiguousarray(a @ (u @ vt)), b, 50, faiss_cpu.nearest)
    pairs = zip(found.source.tolist(), found.target.tolist(), strict=True)
    taken = [set(seeds[:, i].tolist()) for i in (0, 1)]
    return {p: 0.5 for p in pairs if p[0] not in taken[0] and p[1] not in taken[1]}


def judge(task: tuple[Path, Row, int]) -> dict[str, float]:
    """One draw of one line."""
    folder, row, draw = task
    source, target, seeds, truth = cut(folder, row, draw)
    begun, rounds, estimates = time.process_time(), 1, {}
    if row.method == "procrustes":
        links = procrustes(source, target, seeds)
        taken_off, recovery = True, None
    elif row.method == "consensus":
        settings = load_settings(overrides=[*row.change.split(), *([] if row.seeds else ["consensus.start=unpaired"])])
        loop = consensus_in_process(source, target, seeds, settings)
        answer, rounds = loop.answer(), len(loop.history)
        recovery, taken_off, estimates = answer.recovery.pairs or 0.0, answer.taken_off, answer.estimates
        estimates = {
            **estimates,
            "seed_recovery": answer.recovery.seeds,
            "seeds_ahead": answer.recovery.ahead,
            "true_shared": len(truth) - len(seeds),
        }
        pairs = map(tuple, row_pairs(answer.promoted).tolist())
        links = dict(zip(pairs, answer.promoted["confidence"].to_pylist(), strict=True))
    else:
        result = link_in_process(source, target, seeds, load_settings(preset=row.method).link)
        links, rounds, taken_off = result.anchors, len(result.rounds), result.taken_off
        recovery = result.recovery
    seconds = time.process_time() - begun
    # A seed that the audit dropped can be linked again; it still counts in no figure.
    given = set(map(tuple, seeds.tolist()))
    links = {pair: c for pair, c in links.items() if pair not in given}
    correct = np.array([truth.get(a) == b for a, b in links], dtype=np.float64)
    confidence = np.array(list(links.values()), dtype=np.float64)
    found = score(int(correct.sum()), len(links), len(truth) - len(seeds))
    order = np.argsort(-confidence, kind="stable")
    enough = int(np.ceil(0.6 * (len(truth) - len(seeds))))
    reached = np.flatnonzero(np.cumsum(correct[order]) >= enough)
    at_recall = float(correct[order][: reached[0] + 1].mean()) if len(reached) else 0.0
    bins = np.minimum((confidence * 10).astype(np.int64), 9)
    sums = [np.bincount(bins, weights=w, minlength=10) for w in (np.ones(len(links)), confidence, correct)]
    return {**asdict(found), "ece": expected_calibration_error(*sums), "rounds": rounds, "seconds": seconds,
            "taken_off": taken_off, "recovery": recovery, "draw": draw, "estimates": estimates,
            "precision_at_recall_60": at_recall, "bins": [list(map(float, b)) for b in sums]}  # fmt: skip


def pooled_error(draws: list[dict[str, float]]) -> float:
    """Calibration error of all draws' links together: what single draws are off by chance evens out."""
    return float(expected_calibration_error(*np.sum([d["bins"] for d in draws], axis=0)))


def chance_errors(draws: list[dict[str, float]]) -> np.ndarray:
    """Calibration errors, means over the draws, that faultless confidences would show on so few links: (1000,)."""
    rng, errors = np.random.default_rng(0), []
    for links, confidence, _ in (np.array(d["bins"]) for d in draws):
        full = links > 0
        right = rng.binomial(links[full].astype(int), confidence[full] / links[full], (1_000, int(full.sum())))
        errors.append(np.abs(right - confidence[full]).sum(axis=1) / max(links.sum(), 1))
    return np.mean(errors, axis=0)


def held(draws: list[dict[str, float]]) -> str:
    """In how many draws the intervals of precision, recall and shared objects hold the truth."""
    truths = {"precision": "precision", "recall": "recall", "shared": "true_shared"}
    if not all("precision_interval" in d["estimates"] for d in draws):
        return "-"
    counts = []
    for estimate, truth in truths.items():
        edges = [(d["estimates"][f"{estimate}_interval"], {**d["estimates"], **_found(d)}[truth]) for d in draws]
        counts.append(sum(low <= value <= high for (low, high), value in edges))
    return ", ".join(f"{c}/{len(draws)}" for c in counts)


def _found(draw: dict[str, float]) -> dict[str, float]:
    return {name: draw[name] for name in ("precision", "recall")}


def line(row: Row, draws: list[dict[str, float]]) -> str:
    """One printed line: means and standard deviations over the draws."""
    cells = [
        f"{np.mean([d[k] for d in draws]):.3f} ± {np.std([d[k] for d in draws]):.3f}"
        for k in ("precision", "recall", "f1")
    ]
    off = sum(bool(d["taken_off"]) for d in draws)
    ece, rounds, seconds = (np.mean([d[k] for d in draws]) for k in ("ece", "rounds", "seconds"))
    apart = "" if row.overlap == OVERLAP else f", overlap {row.overlap}"
    learnt = row.method != "procrustes"  # the baseline has neither a take-off test nor a confidence
    error = f"{ece:.3f}, {pooled_error(draws):.3f}, {chance_errors(draws).mean():.3f}"
    took, again, error = (f"{off}/{len(draws)}", _span(draws, "recovery"), error) if learnt else ("-",) * 3
    ahead = [d["estimates"].get("seeds_ahead") for d in draws]
    ahead = "-" if None in ahead else f"{min(ahead):.2f} - {max(ahead):.2f}"
    return (
        f"| {row.data} {row.objects:,}{apart} | {row.source} - {row.target} | {row.seeds} | {row.method} | "
        f"{' | '.join(cells)} | {took} | {again} | {ahead} | {error} | {held(draws)} | {rounds:.0f} | {seconds:.0f} |"
    )


def name(row: Row) -> str:
    """What --only looks in: data objects encoders seeds method overlap."""
    return f"{row.data} {row.objects} {row.source}-{row.target} {row.seeds} {row.method} {row.overlap}"


def _span(draws: list[dict[str, float]], key: str) -> str:
    values = [d[key] for d in draws]
    return f"{min(values):.2f} - {max(values):.2f}"


def options_parser(description: str, draws: str) -> argparse.ArgumentParser:
    """What benches of the loops are asked for."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE)
    parser.add_argument("--draws", default=draws, type=lambda text: [int(d) for d in text.split(",")])
    parser.add_argument("--only", default="", help="keep lines that hold this text")
    parser.add_argument("--workers", type=int, default=2)
    return parser


def measured(chosen: list[Row], options: argparse.Namespace) -> Iterator[tuple[Row, list[dict[str, float]]]]:
    """Every line with its draws, as they come."""
    with ProcessPoolExecutor(options.workers) as pool:
        results = pool.map(judge, [(options.data, row, d) for row in chosen for d in options.draws])
        for row in chosen:
            yield row, [next(results) for _ in options.draws]


def main() -> None:
    """Print the table as it grows; every draw is kept in results/quality.json, lines not run this time stay there."""
    parser = options_parser(__doc__, "0,1,2,3,4")
    parser.add_argument("--trial", action="store_true", help="keep nothing: for draws on which settings are chosen")
    parser.add_argument("--change", default="", help="settings that differ, space between; with --trial")
    parser.add_argument("--stored", action="store_true", help="run nothing: print what is kept")
    options = parser.parse_args()
    if options.change and not options.trial:
        parser.error("--change goes with --trial: the table is that of the presets")
    chosen = [replace(r, change=options.change) for r in rows(options.data) if options.only in name(r)]
    chance = OVERLAP * 2 / (1 + OVERLAP)
    print(
        f"Overlap {OVERLAP} of the union, draws {options.draws}; "
        f"a random one-to-one guess has precision about {chance:.2f}/n."
    )
    print("ECE: mean of the draws, of all their links together, and what faultless confidences would show by chance.")
    print("Intervals: draws in which those of precision, recall and shared objects hold the truth.")
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|", flush=True)
    kept = {tuple(r[k] for k in ROW_KEYS): r for r in ({"overlap": OVERLAP, **r} for r in stored("quality"))}
    if options.stored:
        found = [(r, kept.get(tuple(asdict(r)[k] for k in ROW_KEYS), {}).get("draws", [{}])) for r in chosen]
        print("\n".join(line(r, draws) for r, draws in found if "bins" in draws[0]))
        return
    for row, found in measured(chosen, options):
        print(line(row, found), flush=True)
        kept[tuple(asdict(row)[k] for k in ROW_KEYS)] = {**asdict(row), "draws": found}
        if not options.trial:
            keep("quality", list(kept.values()))


if __name__ == "__main__":
    main()
