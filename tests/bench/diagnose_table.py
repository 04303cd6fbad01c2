"""What `veclink diagnose` says of real embeddings with known truth: the table its verdict was calibrated on.

    python -m bench.diagnose_table [--data FOLDER] [--draws 20]

Run in `tests` with `PYTHONPATH=.`. --data names a folder like that of bench.quality. Each line is a pair of
encoders, a number of seeds and what was done to them: `true`, `third wrong` (a third of the pairs moved on by one),
`wrong order` (all of them), `unrelated` (the target cloud holds another corpus, seeds pair anything with anything),
`nothing shared` (the same clouds, but true anchors, half of them like either cloud). The last two need both corpora.
Clouds overlap as in the quality table. Figures: 5 % quantile, median, 95 % quantile over the draws.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import numpy as np

from bench.evidence import keep
from bench.quality import HERE, PAIRS, Row, cut
from veclink.kernels.cloud_shape import cloud_shape
from veclink.kernels.preflight import agreement, common_ground, verdict

CORPORA = {"descriptions": 3000, "scifact": 5183}
COUNTS = (8, 15, 30)
TREATMENTS = ("true", "third wrong", "wrong order", "unrelated", "nothing shared")
SHUFFLES = 49  # chance levels are not in the verdict
SAMPLE = 1000
FIGURES = ("correlation", "near", "cka", "ground")
Clouds = tuple[np.ndarray, np.ndarray]


def draw(data: Path, names: list[str], pair: tuple[str, str], count: int, number: int) -> list[tuple[Clouds, Clouds]]:
    """Clouds and seeds of every corpus, the first the one that is looked at."""
    found = []
    for name in names:
        source, target, seeds, _ = cut(data, Row(name, *pair, CORPORA[name], count, "-"), number)
        found.append(((source, target), (source[seeds[:, 0]], target[seeds[:, 1]])))
    return found


def treat(drawn: list[tuple[Clouds, Clouds]], treatment: str) -> tuple[Clouds, Clouds]:
    """The clouds and seeds after one treatment."""
    clouds, (a, b) = drawn[0]
    if treatment in ("unrelated", "nothing shared"):
        (_, other), (c, d) = drawn[1]
        half = len(a) // 2
        mixed = np.concatenate([a[:half], c[half:]]), np.concatenate([b[:half], d[half:]])
        return (clouds[0], other), ((a, d) if treatment == "unrelated" else mixed)
    wrong = {"true": 0, "third wrong": len(b) // 3, "wrong order": len(b)}[treatment]
    return clouds, (a, np.concatenate([np.roll(b[:wrong], 1, axis=0), b[wrong:]]))


def judge(clouds: Clouds, seeds: Clouds) -> tuple[str, list[float]]:
    """Verdict and figures of one draw."""
    found = agreement(*seeds, 0, SHUFFLES)
    ground = common_ground((clouds[0][:SAMPLE], clouds[1][:SAMPLE]), seeds)
    return verdict(found, ground, len(seeds[0])).word, [found.correlation, found.near, found.cka, ground]


def line(key: tuple[str, ...], results: list[tuple[str, list[float]]]) -> tuple[str, dict[str, object]]:
    """One printed line, and the same as a record."""
    words = Counter(word for word, _ in results)
    spread = np.quantile([figures for _, figures in results], [0.05, 0.5, 0.95], axis=0).T
    cells = [" / ".join(f"{v:.2f}" for v in values) for values in spread]
    counts = [words[w] / len(results) for w in ("expected", "doubtful", "not expected")]
    text = f"| {' | '.join(key)} | {' | '.join(f'{c:.0%}' for c in counts)} | {' | '.join(cells)} |"
    record = dict(zip(FIGURES, spread.tolist(), strict=True))
    return text, {"line": key, "draws": len(results), "verdicts": counts, **record}


def shapes(data: Path) -> None:
    """The unpaired figures of every cloud."""
    print("\n| data | encoder | hub skewness | antihubs | intrinsic dimension | near duplicates |")
    print("|---|---|---|---|---|---|")
    for name in CORPORA:
        if (data / f"{name}.npz").exists():
            stored = np.load(data / f"{name}.npz")
            for encoder in ("minilm", "mpnet", "use"):
                rows = stored[encoder][:5000].astype(np.float32)
                found = cloud_shape(np.unique(rows / np.linalg.norm(rows, axis=1, keepdims=True), axis=0), 10)
                print(
                    f"| {name} | {encoder} | {found.hub_skewness:.2f} | {found.antihubs:.3f} | "
                    f"{found.intrinsic_dimension:.1f} | {found.near_duplicates:.4f} |"
                )


def main() -> None:
    """Print the table, and keep it in results/diagnose.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE)
    parser.add_argument("--draws", type=int, default=20)
    options = parser.parse_args()
    names = [n for n in CORPORA if (options.data / f"{n}.npz").exists()]
    print(f"| data | encoders | seeds | pairs | expected | doubtful | not expected | {' | '.join(FIGURES)} |")
    print("|" + "---|" * (7 + len(FIGURES)), flush=True)
    records = []
    for name in names:
        order = sorted(names, key=lambda other: other != name)
        for pair in PAIRS:
            for count in COUNTS:
                draws = [draw(options.data, order, pair, count, d) for d in range(options.draws)]
                for treatment in TREATMENTS if len(names) > 1 else TREATMENTS[:3]:
                    found = [judge(*treat(d, treatment)) for d in draws]
                    text, record = line((name, " - ".join(pair), str(count), treatment), found)
                    print(text, flush=True)
                    records.append(record)
    keep("diagnose", records)
    shapes(options.data)


if __name__ == "__main__":
    main()
