"""The reliability of every `consensus` line of the quality table as one picture: results/calibration.png.

    python -m bench.calibration

Run in `tests`, after `bench.quality`, from whose figures it is drawn; it needs the extra `report`.
"""

from __future__ import annotations

from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from bench.evidence import RESULTS, stored

COLUMNS = 4
# Bins with fewer links say nothing.
LINKS_MIN = 20


def panel(axes: Any, line: dict[str, Any]) -> None:
    """Share of right links against confidence, all draws together; dots grow with the number of links."""
    links, confidence, right = np.sum([d["bins"] for d in line["draws"]], axis=0)
    full = links >= LINKS_MIN
    axes.plot([0.5, 1], [0.5, 1], color="0.6", linewidth=1)
    x, y = confidence[full] / links[full], right[full] / links[full]
    axes.scatter(x, y, s=10 + 120 * np.sqrt(links[full] / links.sum()), color="#1f5fa8", alpha=0.8)
    axes.set_xlim(0.48, 1.02)
    axes.set_ylim(-0.03, 1.05)
    overlap = "" if line["overlap"] == 0.3 else f", overlap {line['overlap']}"
    axes.set_title(
        f"{line['data']} {line['objects']:,}{overlap}\n{line['source']} - {line['target']}, {line['seeds']} seeds, "
        f"ECE {np.mean([d['ece'] for d in line['draws']]):.3f}",
        fontsize=8,
    )
    axes.tick_params(labelsize=7)


def main() -> None:
    """Draw it."""
    lines = [r for r in stored("quality") if r["method"] == "consensus" and all("bins" in d for d in r["draws"])]
    rows = -(-len(lines) // COLUMNS)
    figure, grid = plt.subplots(rows, COLUMNS, figsize=(10, 2.7 * rows), squeeze=False, layout="constrained")
    for axes in grid.ravel()[len(lines) :]:
        axes.set_visible(False)
    for axes, line in zip(grid.ravel(), lines, strict=False):
        panel(axes, line)
    figure.supxlabel("confidence of links", fontsize=9)
    figure.supylabel("share of them that is right", fontsize=9)
    figure.savefig(RESULTS / "calibration.png", dpi=110)
    print(RESULTS / "calibration.png")


if __name__ == "__main__":
    main()
