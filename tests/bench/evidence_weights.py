"""The evidence model against the truth: its weights, and what another feature could add.

    python -m bench.evidence_weights [--data FOLDER] [--draws 101,102] [--only TEXT] [--workers 2]

Run in `tests`. A line a draw, on a run's last rounds: F1 by the model, which knows no truth; by weights fitted to the
truth, in the units that the model sees (evidence_model.PRIOR holds what they have in common); and by the same with
neighbourhood consensus as a seventh feature: of the matched among the source row's nearest, the share whose match is
near the target row. The draws are those that settings were chosen on. Nothing is kept.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from bench.quality import Row, cut, name, options_parser, rows
from in_process_consensus import consensus_in_process
from veclink.backends import faiss_cpu
from veclink.kernels import judging
from veclink.kernels.evidence_model import FEATURES, Model, Pull, Units, weighted_logistic
from veclink.kernels.judge import score
from veclink.kernels.judging import Pairs
from veclink.kernels.posterior import one_to_one
from veclink.settings import load_settings

# On half the squared weights, in pairs.
PENALTY = 0.25
NEIGHBOURS = 30, 20, 10  # looked at around the source row, around the target row; matched ones that count


def neighbour_consensus(pairs: Pairs, matched: np.ndarray, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """(p,) log odds. matched: (n_a,) target row of each source row that is an anchor, else -1."""
    around, near, count = NEIGHBOURS
    (_, a), (_, b) = (faiss_cpu.nearest(x, x, k + 1, 1) for x, k in ((source, around), (target, near)))
    odds = np.empty(len(pairs))
    for i, (u, v) in enumerate(zip(pairs.source.tolist(), pairs.target.tolist(), strict=True)):
        known = matched[a[u, 1:]]
        known = known[(known >= 0) & (known != v)][:count]
        agree = int(np.isin(known, b[v, 1:]).sum())
        odds[i] = np.log((agree + 0.5) / (len(known) - agree + 0.5))
    return odds


def judge(task: tuple[Path, Row, int]) -> tuple[np.ndarray, list[float]]:
    """Weights fitted to the truth, (f,), and the three F1 of one draw."""
    folder, row, draw = task
    source, target, seeds, truth = cut(folder, row, draw)
    loop = consensus_in_process(source, target, seeds, load_settings())
    judged = loop._judged(loop._window)
    pairs = judged.pairs
    right = np.array([truth.get(a) == b for a, b in zip(pairs.source.tolist(), pairs.target.tolist(), strict=True)])

    def f1(confidence: np.ndarray) -> float:
        chosen = one_to_one(pairs.source, pairs.target, confidence)
        chosen = chosen[confidence[chosen] >= 0.5]
        return score(int(right[chosen].sum()), len(chosen), len(truth) - len(seeds)).f1

    matched = np.full(len(source), -1)
    matched[loop.anchors.rows[:, 0]] = loop.anchors.rows[:, 1]
    features = judging.evidence(pairs)
    more = neighbour_consensus(pairs, matched, source, target)
    models = [fitted(x, right) for x in (features, np.column_stack([features, more]))]
    by_truth = models[0].probability(features), models[1].probability(np.column_stack([features, more]))
    return models[0].weights[:-1], [f1(c) for c in (judged.confidence, *by_truth)]


def fitted(features: np.ndarray, right: np.ndarray) -> Model:
    """The model as it would be with the truth known."""
    units = Units.of(features)
    design = units.design(features)
    none = np.zeros(design.shape[1])
    weights = weighted_logistic(design, right.astype(np.float64), np.ones(len(design)), none, Pull(none, PENALTY))
    return Model(units, weights)


def main() -> None:
    """Print a line a draw, then the medians and the spread."""
    options = options_parser(__doc__, "101,102").parse_args()
    chosen = [r for r in rows(options.data) if r.method == "consensus" and r.seeds >= 15 and options.only in name(r)]
    tasks = [(options.data, r, d) for r in chosen for d in options.draws]
    print(f"| {' | '.join(FEATURES)} | F1, model | truth | with neighbours | on |\n{'|---' * (len(FEATURES) + 4)}|")
    found = []
    with ProcessPoolExecutor(options.workers) as pool:
        for (_, row, draw), (weights, f1) in zip(tasks, pool.map(judge, tasks), strict=True):
            figures = [f"{w:.2f}" for w in weights] + [f"{f:.3f}" for f in f1]
            print(f"| {' | '.join(figures)} | {name(row)}, draw {draw} |", flush=True)
            found.append([*weights, *f1])
    for text, line in (("median", np.median(found, axis=0)), ("standard deviation", np.std(found, axis=0))):
        print(f"| {' | '.join(f'{x:.2f}' for x in line)} | {text} |")


if __name__ == "__main__":
    main()
