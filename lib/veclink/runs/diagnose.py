"""The look before a run: whether linking these two clouds from these seeds is expected to work.

prepare both clouds -> read the seeds -> a bounded sample of each cloud -> figures -> verdict (-> page)
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from veclink import arrow_cols, pages, tables
from veclink.errors import InputError
from veclink.kernels import preflight
from veclink.kernels.cloud_shape import NEAR_DUPLICATE, ROWS_MIN, CloudShape, cloud_shape, directions_for
from veclink.runs import diagnose_page
from veclink.runs.answer import cloud_counts
from veclink.runs.opening import SIDES, LinkRequest, Opening
from veclink.runs.prepare import PreparedCloud
from veclink.runs.progress import Progress, Quiet
from veclink.runtime import output_lock
from veclink.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Of a sample, as near copies outside it go unseen: the share in the cloud is larger.
NEAR_DUPLICATES_WORTH_A_WORD = 0.01


@dataclass(frozen=True)
class _Findings:
    """Everything the report and the page are made of."""

    seeds: tuple[np.ndarray, np.ndarray]
    agreement: preflight.Agreement | None
    ground: float
    shapes: tuple[CloudShape, CloudShape]


def diagnose(
    spark: SparkSession, request: LinkRequest, settings: Settings, progress: Progress | None = None
) -> dict[str, Any]:
    """Look at the clouds and seeds of a link run, and say whether it is expected to work.

    request: as for `link`. With an empty `out` nothing is kept: clouds are prepared in a temporary folder of the driver
    (which the executors must see too). Otherwise they are prepared where `link` would do it, and `out/diagnose.html` is
    written. Returns the report (the object `veclink diagnose --json` prints). Raises InputError and RunLocked as `link`
    does; seeds that disagree are a verdict here and no error.
    """
    progress = progress or Quiet()
    if request.out:
        pages.need_matplotlib()
        return _diagnose(spark, request.resolved(), settings, progress, keep=True)
    with tempfile.TemporaryDirectory(prefix="veclink-") as out:
        return _diagnose(spark, replace(request, out=out).resolved(), settings, progress, keep=False)


def _diagnose(
    spark: SparkSession, request: LinkRequest, settings: Settings, progress: Progress, *, keep: bool
) -> dict[str, Any]:
    with output_lock(request.out):
        look = _Diagnosis(spark, request, settings, progress)
        report = look.run()
        if keep:
            report["page"] = look.write_page(report)
    return report


class _Diagnosis:
    """The opening of a link run, then figures instead of rounds."""

    def __init__(self, spark: SparkSession, request: LinkRequest, settings: Settings, progress: Progress) -> None:
        # All seeds count, and whether they agree is what is asked.
        link = settings.link.model_copy(update={"seed_check": "off", "holdback_seeds": 0})
        self.spark, self.request, self.progress = spark, request, progress
        self.settings = settings.model_copy(update={"link": link})

    def run(self) -> dict[str, Any]:
        if self.request.seeds is None and self.request.anchors is None:
            raise InputError("diagnose starts from seeds or from two anchor tables", do="Give exactly one of the two")
        opening = Opening(self.spark, self.request, self.settings, self.progress)
        opening.inputs()  # refuses two names of one table
        self.clouds, self.seeds = opening.clouds(), opening.seeds()
        self.progress.step("comparing ...")
        self.findings = self._figures()
        return self._report(self.findings)

    def write_page(self, report: dict[str, Any]) -> str | None:
        """Write the page; its path, None where the output folder is not on a file system."""
        if not tables.is_local(self.request.out):
            self.progress.note(f"no page: {self.request.out} is not a folder on a file system")
            return None
        path = Path(self.request.out) / "diagnose.html"
        found = self.findings
        inputs = [cloud.input for cloud in self.clouds]
        diagnose_page.write(path, {**report, "inputs": inputs}, found.seeds, found.agreement, found.shapes)
        return str(path)

    def _figures(self) -> _Findings:
        settings, random_seed = self.settings.diagnose, self.settings.link.random_seed
        seeds = self.seeds.anchors.seed_source, self.seeds.anchors.seed_target
        samples = self._sample(self.clouds[0], 0), self._sample(self.clouds[1], 1)
        enough = len(seeds[0]) >= preflight.SEEDS_MIN
        return _Findings(
            seeds=seeds,
            agreement=preflight.agreement(*seeds, random_seed, settings.shuffles) if enough else None,
            ground=preflight.common_ground(samples, seeds),
            shapes=(cloud_shape(samples[0], settings.hub_k), cloud_shape(samples[1], settings.hub_k)),
        )

    def _sample(self, cloud: PreparedCloud, side: int) -> np.ndarray:
        """Random points of a cloud, `diagnose.sample_rows` at most: all that comes to the driver of it."""
        if cloud.points < ROWS_MIN:
            raise InputError(f"{cloud.input} has too few distinct vectors to look at", got=cloud.points)
        points, wanted = tables.read(self.spark, f"{cloud.folder}/points"), self.settings.diagnose.sample_rows
        if cloud.points > wanted:
            rng = np.random.default_rng([self.settings.link.random_seed, side])
            rows = np.sort(rng.choice(cloud.points, wanted, replace=False))
            points = points.join(self.spark.createDataFrame(pa.table({"row": rows})), "row")
        table = points.select("row", "vector").toArrow().sort_by("row")
        return arrow_cols.matrix(table["vector"], cloud.dim)

    def _report(self, found: _Findings) -> dict[str, Any]:
        count = len(found.seeds[0])
        doubts = [f"{side}: {w}" for side, c in zip(SIDES, self.clouds, strict=True) for w in c.warnings]
        verdict = preflight.verdict(found.agreement, found.ground, count, doubts)
        ranks = [preflight.seed_rank(s) for s in found.seeds]
        seeds: dict[str, Any] = {"count": count}
        for side, rank, cloud in zip(SIDES, ranks, self.clouds, strict=True):
            seeds |= {f"{side}_rank": rank, f"{side}_dim": cloud.dim}
        sides = [
            {"side": side, **cloud_counts(cloud), **_shape_figures(shape)}
            for side, cloud, shape in zip(SIDES, self.clouds, found.shapes, strict=True)
        ]
        return {
            "verdict": verdict.word,
            "reason": verdict.reason,
            "seeds": seeds,
            **_agreement_figures(found),
            "clouds": sides,
            "warnings": [*doubts, *self.seeds.warnings, *_rank_warnings(seeds), *_copy_warnings(sides)],
            "page": None,
        }


def _agreement_figures(found: _Findings) -> dict[str, Any]:
    ground = {"common_ground": found.ground}
    if found.agreement is None:
        return {"agreement": ground, "distance_bins": [], "neighbours": []}
    figures = asdict(found.agreement)
    bins, lists = figures.pop("bins"), figures.pop("lists")
    return {"agreement": figures | ground, "distance_bins": list(bins), "neighbours": list(lists)}


def _shape_figures(shape: CloudShape) -> dict[str, Any]:
    return {
        "sample_rows": len(shape.occurrences),
        "near_duplicates": shape.near_duplicates,
        "hub_skewness": shape.hub_skewness,
        "antihubs": shape.antihubs,
        "intrinsic_dimension": shape.intrinsic_dimension,
        "directions_90": directions_for(shape.variance, 0.9),
    }


def _rank_warnings(seeds: dict[str, Any]) -> list[str]:
    """What a linear map fitted on the seeds could not know."""
    found = []
    short = [f"rank {seeds[f'{s}_rank']} of {seeds[f'{s}_dim']} ({s})" for s in SIDES]
    if any(seeds[f"{s}_rank"] < seeds[f"{s}_dim"] for s in SIDES):
        found.append(f"the seeds have {' and '.join(short)}: a linear map fitted on them alone leaves the rest open")
    for side in SIDES:
        if seeds[f"{side}_rank"] < min(seeds["count"], seeds[f"{side}_dim"]):
            found.append(f"{side}: the {seeds['count']} seeds depend on each other, their rank is no higher")
    return found


def _copy_warnings(sides: list[dict[str, Any]]) -> list[str]:
    return [
        f"{s['side']}: {s['near_duplicates']:.1%} of the sampled vectors have a near copy (cosine above "
        f"{NEAR_DUPLICATE}) in the sample, and which copy belongs to which cannot be known"
        for s in sides
        if s["near_duplicates"] > NEAR_DUPLICATES_WORTH_A_WORD
    ]
