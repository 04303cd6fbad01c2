"""What each part of `consensus` is worth: the same runs with one part removed or changed at a time.

    python -m bench.ablation [--data FOLDER] [--draws 101,102] [--only votes] [--workers 2]

Run in `tests`. The draws are those that settings were chosen on, not those of the quality table. Results are kept in
results/ablation.json; lines not run this time stay there.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from bench.evidence import keep, stored
from bench.quality import ROW_KEYS, Row, measured, options_parser

KEYS = (*ROW_KEYS, "change")
# What is removed or changed, and the settings that do it.
CHANGES = {
    "nothing": "",
    "no soft start: a view fitted on the seeds": "consensus.start=plain",
    "one soft map instead of two": "consensus.start_maps=1",
    "all agreed pairs as first anchors": "consensus.start_share=1",
    "ridge regression instead of canonical correlation": "consensus.view_kind=ridge",
    "distances to anchors instead of canonical correlation": "consensus.view_kind=hash",
    "a quarter of the ridge": "consensus.ridge=.25",
    "four times the ridge": "consensus.ridge=4",
    "votes instead of the evidence model": "consensus.evidence=votes",
    "no bounds on how many are right": "consensus.evidence=free",
    "one round's evidence at a time": "consensus.window=1",
    "no limit to growth": "consensus.growth=1000000",
    "anchors as sure as links": "consensus.promote_floor=.5",
    "half as many views": "consensus.views=4",
    "bags of nearly all anchors": "consensus.bag_share=.87",
}


def cases(folder: Path) -> list[Row]:
    """Hard ones: unlike encoders, and few shared objects."""
    rows = [Row("scifact", "mpnet", "use", 5183, 30, "consensus")]
    if (folder / "descriptions.npz").exists():
        rows += [Row("descriptions", "minilm", "mpnet", 6000, 30, "consensus", 0.05)]
    return rows


def line(change: str, row: Row, draws: list[dict[str, float]]) -> str:
    """One printed line: means over the draws."""
    figures = [f"{np.mean([d[k] for d in draws]):.3f}" for k in ("precision", "recall", "f1", "ece")]
    rounds, off = np.mean([d["rounds"] for d in draws]), sum(bool(d["taken_off"]) for d in draws)
    where = f"{row.data} {row.source} - {row.target}, {row.seeds} seeds, overlap {row.overlap}"
    return f"| {change} | {where} | {' | '.join(figures)} | {rounds:.0f} | {off}/{len(draws)} |"


def main() -> None:
    """Print the table as it grows."""
    options = options_parser(__doc__, "101,102").parse_args()
    names = {settings: change for change, settings in CHANGES.items()}
    chosen = [s for s, change in names.items() if options.only in f"{change} {s}"]
    rows = [replace(row, change=s) for s in chosen for row in cases(options.data)]
    print("| changed | on | precision | recall | F1 | ECE | rounds | took off |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    kept = {tuple(r[k] for k in KEYS): r for r in stored("ablation")}
    for row, found in measured(rows, options):
        print(line(names[row.change], row, found), flush=True)
        done = {**asdict(row), "draws": found}
        kept[tuple(done[k] for k in KEYS)] = done
        keep("ablation", list(kept.values()))


if __name__ == "__main__":
    main()
