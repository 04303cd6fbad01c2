"""The tables of the README under "How good", from what the other benches have stored; nothing is run.

    python -m bench.tables

Run in `tests`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.ablation import CHANGES
from bench.evidence import stored
from bench.quality import OVERLAP, chance_errors, held, pooled_error

# The calibration error that a line should stay below.
ECE_ASKED = 0.03
Line = dict[str, Any]
ENCODERS = {"minilm": "MiniLM", "mpnet": "mpnet", "use": "USE"}


def places(value: float) -> str:
    """Three decimals, no zero before the point."""
    return f"{value:.3f}".removeprefix("0") if value < 1 else f"{value:.3f}"


def spread(draws: list[Line], key: str) -> str:
    """Mean and standard deviation."""
    values = [d[key] for d in draws]
    return f"{places(np.mean(values))} ± {places(np.std(values))}"


def start(line: Line) -> tuple[str, str, str]:
    """Data, encoders and seeds as a reader wants them."""
    names = {"scifact": "SciFact"}
    apart = "" if line["overlap"] == OVERLAP else f", overlap {places(line['overlap'])[:-1]}"
    data = f"{names.get(line['data'], line['data'])} {line['objects']:,}{apart}"
    return data, f"{ENCODERS[line['source']]} - {ENCODERS[line['target']]}", str(line["seeds"])


def consensus(lines: list[Line]) -> list[str]:
    """One line of the table of the default preset for each of the bench's."""
    printed = []
    for line in lines:
        draws = line["draws"]
        error, chance = np.mean([d["ece"] for d in draws]), chance_errors(draws)
        ece = ", ".join(map(places, (error, pooled_error(draws), chance.mean())))
        if error > ECE_ASKED:
            ece += f" (faultless ones show as much or more in {np.mean(chance >= error):.0%})"
        cells = [*start(line), spread(draws, "precision"), spread(draws, "recall"), f"**{spread(draws, 'f1')}**"]
        cells += [f"{sum(bool(d['taken_off']) for d in draws)}/{len(draws)}", ece, held(draws)]
        printed.append(f"| {' | '.join(cells)} | {np.mean([d['seconds'] for d in draws]):.0f} |")
    return printed


def compared(lines: list[Line]) -> list[str]:
    """F1 of the other methods, and the CPU seconds of `reference`, in brackets where no draw took off."""
    found: dict[tuple[str, str, str], dict[str, str]] = {}
    for line in lines:
        if line["method"] != "consensus" and line["seeds"]:
            draws, cells = line["draws"], found.setdefault(start(line), {})
            told = spread(draws, "f1")
            cells[line["method"]] = told if any(d["taken_off"] for d in draws) else f"({told})"
            if line["method"] == "reference":
                cells["seconds"] = f"{np.mean([d['seconds'] for d in draws]):.0f}"
    order = ("procrustes", "paper", "reference", "seconds")
    return [f"| {' | '.join([*key, *(cells.get(name, '') for name in order)])} |" for key, cells in found.items()]


def ablation(lines: list[Line]) -> list[str]:
    """One line a change, its cases side by side."""
    printed = []
    for change, settings in CHANGES.items():
        cells = [f"{change} (`{settings}`)" if settings else change]
        for line in (r for r in lines if r["change"] == settings):
            f1, ece, rounds = (np.mean([d[k] for d in line["draws"]]) for k in ("f1", "ece", "rounds"))
            told = places(f1) if all(d["taken_off"] for d in line["draws"]) else f"({places(f1)})"
            cells += [told, places(ece), f"{rounds:.0f}"]
        printed.append(f"| {' | '.join(cells)} |")
    return printed


def main() -> None:
    """Print them."""
    lines = [{"overlap": OVERLAP, **r} for r in stored("quality")]
    ordered = sorted(lines, key=lambda r: (r["data"], r["overlap"] != OVERLAP, r["objects"], r["source"], r["target"]))
    chosen = [r for r in ordered if r["method"] == "consensus"]
    for title, rows in (("Consensus", consensus(chosen)), ("Compared", compared(ordered)),
                        ("Ablation", ablation(stored("ablation")))):  # fmt: skip
        print(f"\n{title}\n", *rows, sep="\n")


if __name__ == "__main__":
    main()
