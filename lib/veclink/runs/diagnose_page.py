"""The page of `veclink diagnose`: verdict, pictures, and every figure beside its chance level."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from veclink import pages
from veclink.kernels import preflight
from veclink.kernels.cloud_shape import CloudShape, directions_for
from veclink.pages import MARK, QUIET, SOURCE, TARGET

MOODS = {preflight.EXPECTED: "good", preflight.DOUBTFUL: "middling", preflight.NOT_EXPECTED: "bad"}
MOST_DOTS = 1_500
COLOURS = (SOURCE, TARGET)
SIDES = ("source", "target")

Shapes = tuple[CloudShape, CloudShape]
Seeds = tuple[np.ndarray, np.ndarray]


def write(
    path: Path, report: dict[str, Any], seeds: Seeds, agreement: preflight.Agreement | None, shapes: Shapes
) -> None:
    """Write the page.

    report: what `diagnose` returns, and `inputs`, the two locations; the others are what the pictures are drawn from.
    """
    paired = [] if agreement is None else [_scatter(seeds, agreement), _by_distance(agreement)]
    if agreement is not None and agreement.lists:
        paired.append(_neighbours(agreement))
    parts = [
        pages.paragraph(f"Source: {report['inputs'][0]}. Target: {report['inputs'][1]}.", quiet=True),
        pages.banner(MOODS[report["verdict"]], f"Linking: {report['verdict']}", _sentence(report["reason"])),
        *[pages.paragraph(f"Note: {_sentence(w)}", quiet=True) for w in report["warnings"]],
        pages.heading("The seeds: do the two sides agree?"),
        _paired_table(report),
        pages.pictures(paired),
        pages.heading("The clouds, each by itself"),
        _cloud_table(report),
        pages.pictures([_occurrences(shapes), _similarities(shapes), _spectrum(shapes)]),
    ]
    pages.write_page(path, "Before linking", parts)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _paired_table(report: dict[str, Any]) -> str:
    found, seeds = report["agreement"], report["seeds"]
    rows: list[tuple[Any, ...]] = [("seeds", seeds["count"], None, "distinct pairs that were used")]
    rows += [
        (f"rank, {s}", seeds[f"{s}_rank"], None, f"of {seeds[f'{s}_dim']} dimensions: what the seeds span")
        for s in SIDES
    ]
    if "correlation" in found:
        test = f"permutation test (Mantel): p = {found['p_value']:.3f}"
        rows += [
            ("correlation of all pair distances", found["correlation"], None, test),
            ("correlation of the shorter half", found["near"], found["near_chance"], "what linking rests on"),
            ("CKA, linear, debiased", found["cka"], found["cka_chance"], "0 unrelated, 1 the same up to a rotation"),
        ]
    for n in report["neighbours"]:
        means = "mean Jaccard index of the nearest seeds on the two sides"
        rows.append((f"shared neighbours, k = {n['k']}", n["jaccard"], n["chance"], means))
    ground = "share of rows around the same seeds; near 0 if the clouds are about other things"
    rows.append(("common ground", found["common_ground"], None, ground))
    return pages.table(["figure", "value", "chance", "what it says"], rows, words_last=True) + pages.paragraph(
        "Chance: what 95 of 100 random pairings of the same seeds do not exceed.", quiet=True
    )


def _cloud_table(report: dict[str, Any]) -> str:
    lines = {
        "vectors": "accepted",
        "dim": "dimensions",
        "rejected": "rows that cannot be used",
        "duplicates": "rows whose vector another row has too",
        "sample_rows": "rows looked at for the figures below",
        "near_duplicates": "share with a nearest cosine above .999 in the sample",
        "hub_skewness": "skewness of the k-occurrence: above 1 a few rows are in many lists",
        "antihubs": "share of rows that are in no list of nearest rows",
        "intrinsic_dimension": "directions in which a row can differ from its neighbours (TwoNN)",
        "directions_90": "principal directions that hold 90 % of the variance",
    }
    one, two = report["clouds"]
    rows = [(name.replace("_", " "), one[name], two[name], text) for name, text in lines.items()]
    return pages.table(["figure", *SIDES, "what it says"], rows, words_last=True)


def _scatter(seeds: Seeds, found: preflight.Agreement) -> str:
    picture, axes = pages.figure("Pair distances")
    kept = [s[: preflight.MOST_SEEDS] for s in seeds]
    upper = np.triu_indices(len(kept[0]), 1)
    a, b = (preflight.euclidean(s)[upper] for s in kept)
    dots = np.random.default_rng(0).permutation(len(a))[:MOST_DOTS]
    axes.scatter(a[dots], b[dots], s=11, color=SOURCE, alpha=0.45, linewidths=0, label="a pair of seeds")
    centres = [x.source for x in found.bins], [x.target for x in found.bins]
    axes.plot(*centres, color=MARK, marker="o", markersize=5, linewidth=1.6, label="mean of a bin")
    axes.set(xlabel="distance, source side", ylabel="distance, target side")
    axes.legend(frameon=False, fontsize=9)
    alt = f"Scatter of the distances of seed pairs, source against target; correlation {found.correlation:.2f}"
    return pages.image(
        picture, alt, "A narrow rising band: both encoders see the same distances. A round cloud: they do not."
    )


def _by_distance(found: preflight.Agreement) -> str:
    picture, axes = pages.figure("Agreement by distance")
    for b in found.bins:
        axes.plot([b.low, b.high], [b.correlation] * 2, color=SOURCE, linewidth=2.4, solid_capstyle="butt")
        axes.plot([b.low, b.high], [b.chance] * 2, color=QUIET, linewidth=1.4, linestyle=(0, (3, 2)))
    x = [b.source for b in found.bins]
    axes.plot(x, [b.correlation for b in found.bins], "o", color=SOURCE, markersize=6, label="correlation in the bin")
    axes.plot([], [], color=QUIET, linewidth=1.4, linestyle=(0, (3, 2)), label="chance (95 %)")
    axes.axhline(0, color=QUIET, linewidth=0.8)
    axes.set(xlabel="distance, source side", ylabel="Pearson correlation")
    axes.set_ylim(min(-0.1, *[b.correlation - 0.05 for b in found.bins]), 1.02)
    axes.legend(frameon=False, fontsize=9)
    caption = (
        f"Bins of about {found.bins[0].pairs} pairs. A bin is narrow, so its correlation is below that of all pairs."
    )
    return pages.image(picture, "Correlation of the pair distances in bins from short to long", caption)


def _neighbours(found: preflight.Agreement) -> str:
    picture, axes = pages.figure("Shared neighbours among the seeds")
    k = [n.k for n in found.lists]
    axes.plot(k, [n.jaccard for n in found.lists], "o-", color=SOURCE, linewidth=2, label="seeds")
    axes.plot(
        k, [n.chance for n in found.lists], "o--", color=QUIET, linewidth=1.4, markersize=4, label="chance (95 %)"
    )
    axes.set(xlabel="k", ylabel="Jaccard index", ylim=(0, 1.02), xticks=k)
    axes.legend(frameon=False, fontsize=9)
    caption = "How many of a seed's k nearest seeds are the same on both sides."
    return pages.image(picture, "Mean Jaccard index of the k nearest seeds, by k", caption)


def _occurrences(shapes: Shapes) -> str:
    picture, axes = pages.figure("Hubs")
    top = max(int(s.occurrences.max()) for s in shapes)
    width = max(1, top // 25)
    _histograms(axes, [s.occurrences for s in shapes], np.arange(0, top + 1 + width, width) - 0.5)
    axes.set(xlabel="lists a row is in", ylabel="share of rows (log)", yscale="log", xlim=(-0.5, top + 1))
    k = shapes[0].similarity.shape[1]
    caption = f"In how many rows' {k} nearest a row stands; {k} on average. A long tail: hubs."
    return pages.image(picture, "Histogram of the k-occurrence on both sides", caption)


def _similarities(shapes: Shapes) -> str:
    picture, axes = pages.figure("Nearest neighbours")
    values = [s.similarity[:, 0] for s in shapes]
    low = min(float(np.quantile(v, 0.001)) for v in values)
    _histograms(axes, values, np.linspace(min(low, 0.98), 1, 41))
    axes.set(xlabel="cosine to the nearest row", ylabel="share of rows")
    caption = "How close the nearest row of the sample is. A peak at 1: near copies."
    return pages.image(picture, "Histogram of the cosine to the nearest row on both sides", caption)


def _histograms(axes: Any, values: list[np.ndarray], edges: np.ndarray) -> None:
    for v, colour, side in zip(values, COLOURS, SIDES, strict=True):
        weights = np.full(len(v), 1 / len(v))
        axes.hist(v, edges, weights=weights, histtype="stepfilled", color=colour, alpha=0.15)
        axes.hist(v, edges, weights=weights, histtype="step", color=colour, linewidth=1.5)
        axes.plot([], [], color=colour, linewidth=1.5, label=side)
    axes.legend(frameon=False, fontsize=9)


def _spectrum(shapes: Shapes) -> str:
    picture, axes = pages.figure("Spectrum")
    floor = 1e-6
    for shape, colour, side in zip(shapes, COLOURS, SIDES, strict=True):
        real = shape.variance[shape.variance > floor]
        label = f"{side}: 90 % in {directions_for(shape.variance, 0.9)}"
        axes.plot(np.arange(1, len(real) + 1), real, color=colour, linewidth=1.8, label=label)
    axes.set(xlabel="principal direction (log)", ylabel="share of variance (log)")
    axes.set(xscale="log", yscale="log")
    axes.legend(frameon=False, fontsize=9)
    caption = "How the variance is spread over the directions. Like encoders have like slopes."
    return pages.image(picture, "Share of the variance by principal direction on both sides", caption)
