"""Consistency of links among three clouds and more: several finished link runs in, judged links and groups out.

open the runs -> links between points -> loops (joins) -> verdicts -> links, suggested, groups
"""

from __future__ import annotations

import functools
import hashlib
import json
import time
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from veclink import __version__, schemas, tables
from veclink.errors import InputError
from veclink.kernels.cycles import Loops, Verdict, judge
from veclink.kernels.groups import groups
from veclink.kernels.posterior import one_to_one
from veclink.runs import record as records
from veclink.runs.cycle_inputs import LinkRun, open_runs, triangles
from veclink.runs.opening import SIDES
from veclink.runs.progress import Progress, Quiet
from veclink.runtime import output_lock
from veclink.settings import Settings
from veclink.stages import cycles as stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# No suggestion is surer, so that doubts can be multiplied.
SUREST = 1 - 1e-12


@dataclass(frozen=True)
class CyclesRequest:
    """links: output folders of link runs, three or more. overwrite: another run's tables in `out` may be replaced."""

    links: tuple[str, ...]
    out: str
    overwrite: bool = False


@dataclass(frozen=True)
class _Pairs:
    """All linked pairs of points, sorted by pair of clouds and rows; a link's number is its place here.

    pair: (n,) position of the run. rows: (n, 2) row numbers, of the lower cloud first. confidence: (n,).
    """

    pair: np.ndarray
    rows: np.ndarray
    confidence: np.ndarray


def cycles(
    spark: SparkSession, request: CyclesRequest, settings: Settings, progress: Progress | None = None
) -> dict[str, Any]:
    """Judge the links of several runs by each other, or return the report of the same judgement made before.

    Returns the report (the object `veclink cycles --json` prints). Raises InputError or RunLocked.
    """
    folders = tuple(tables.resolve_folder(folder) for folder in request.links)
    request = replace(request, links=folders, out=tables.resolve_folder(request.out))
    _check_apart(folders, request.out)
    with output_lock(request.out):
        return _Run(spark, request, settings, progress or Quiet()).run()


class _Run:
    def __init__(self, spark: SparkSession, request: CyclesRequest, settings: Settings, progress: Progress) -> None:
        self.spark, self.out, self.settings, self.progress = spark, request.out, settings, progress
        self.started = time.monotonic()
        self.request = request
        self.names, self.runs = open_runs(spark, request.links)
        _check_apart([cloud.folder for run in self.runs for cloud in run.clouds], self.out)
        # Positions of the runs that a loop can go through.
        self.in_loops = {i for sides in triangles([run.pair for run in self.runs]) for i in sides}
        for i in sorted({*range(len(self.runs))} - self.in_loops):
            self.progress.note(
                f"warning: {self.runs[i].folder} is in no three runs that join three clouds: its links stay as they are"
            )

    def run(self) -> dict[str, Any]:
        key = _key(self.runs, self.settings)
        record = records.claim(self.spark, self.out, key, self.request.overwrite)
        if record is not None and record.status == records.DONE:
            self.progress.note(f"run {key} was finished before; this is its stored result")
            return record.report
        inputs = records.Inputs("", "", {run.folder: run.run_key for run in self.runs}, [])
        settings = self.settings.model_dump_json()
        record = records.Record(key, uuid.uuid4().hex, records.RUNNING, inputs, settings, {})
        records.write(self.spark, self.out, record)
        report = {"run_key": key, "out": self.out, **self._judge()}
        report["seconds"] = round(time.monotonic() - self.started, 1)
        records.write(self.spark, self.out, replace(record, status=records.DONE, report=report))
        return report

    def _judge(self) -> dict[str, Any]:
        self.linked = [self._linked(run) for run in self.runs]
        self.pairs = self._point_pairs()
        self.progress.step(f"{len(self.pairs.pair)} links of {len(self.runs)} pairs of clouds ...")
        loops, ends = self._loops()
        kinds = f"{len(loops.closed)} closed and {len(loops.broken)} broken loops, {len(loops.open)} open chains"
        self.progress.note(f"{len(self.pairs.pair)} links: {kinds}")
        verdict = judge(self.pairs.confidence, loops, self.settings.cycles.kappa)
        self._write_links(loops, verdict)
        suggested = self._write_suggested(loops, verdict, ends)
        spans, left_out = self._write_groups(verdict)
        return {
            "clouds": [{"cloud": i, "name": name} for i, name in enumerate(self.names)],
            "pairs": self._figures(verdict, suggested),
            "kappa": verdict.kappa,
            "groups": [{"clouds": n, "groups": count} for n, count in sorted(spans.items())],
            "links_left_out": left_out,
            "runs": [{"links": r.folder, "run_key": r.run_key, "source": r.numbers[0], "target": r.numbers[1]}
                     for r in self.runs],
        }  # fmt: skip

    def _linked(self, run: LinkRun) -> DataFrame:
        """Links of a run with their points, the lower cloud as the source."""
        ids = [tables.read(self.spark, f"{cloud.folder}/ids") for cloud in run.clouds]
        links = stage.point_links(tables.read(self.spark, f"{run.folder}/links"), ids[0], ids[1])
        if run.numbers[0] > run.numbers[1]:
            ends = [f"{side}_{what}" for side in SIDES for what in ("id", "row", "copies")]
            names = ["confidence", "is_seed", "point_confidence", *ends]
            links = links.select(names).toDF(*names[:3], *ends[3:], *ends[:3])
        return links

    def _point_pairs(self) -> _Pairs:
        """Links on the driver, 32 bytes each."""
        parts = [stage.point_pairs(linked).toArrow() for linked in self.linked]
        parts = [p.sort_by([(c, "ascending") for c in schemas.ROWS]) for p in parts]
        rows = [np.stack([p[c].to_numpy() for c in schemas.ROWS], axis=1).reshape(-1, 2) for p in parts]
        pair = np.repeat(np.arange(len(parts)), [len(p) for p in parts])
        return _Pairs(pair, np.concatenate(rows), np.concatenate([p["confidence"].to_numpy() for p in parts]))

    def _loops(self) -> tuple[Loops, np.ndarray]:
        """All loops of all triangles on the driver, and (o, 2) the outer points of open chains.

        A link is the centre of one broken loop in a triangle at most, so this is below 100 bytes per link and triangle.
        """
        pairs, found = self.pairs, []
        frames = [self._frame(i) for i in range(len(self.runs))]
        for sides in triangles([run.pair for run in self.runs]):
            table = stage.loops([frames[i] for i in sides]).toArrow()
            columns = [table[c].fill_null(-1).to_numpy() for c in ("first", "centre", "last")]
            kind = np.array(table["kind"].to_pylist(), dtype=str)
            rows = np.stack(columns, axis=1).reshape(-1, 3).astype(np.int64)
            found.append((kind, rows, np.full(len(rows), sum(sides))))
        kind, rows, total = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))
        kind, rows, total = kind[order], rows[order], total[order]
        closed, broken = (rows[kind == name] for name in (stage.CLOSED, stage.BROKEN))
        opened = rows[kind == stage.OPEN][:, :2]
        # Of the three pairs of a triangle, the one that neither link is of.
        lacking = total[kind == stage.OPEN] - pairs.pair[opened].sum(axis=1)
        return Loops(pairs.pair, closed, broken, opened, lacking), self._ends(opened, lacking)

    def _frame(self, number: int) -> DataFrame:
        mine = np.flatnonzero(self.pairs.pair == number)
        rows = self.pairs.rows[mine]
        return self.spark.createDataFrame(pa.table({"link": mine, "source_row": rows[:, 0], "target_row": rows[:, 1]}))

    def _ends(self, opened: np.ndarray, lacking: np.ndarray) -> np.ndarray:
        """(o, 2) rows of the points that open chains call to link, of the lower cloud first."""
        clouds = np.array([run.pair for run in self.runs])
        ends = np.empty((len(opened), 2), dtype=np.int64)
        for side in (0, 1):
            for link in opened.T:
                at = clouds[self.pairs.pair[link]] == clouds[lacking][:, [side]]
                mine = at.any(axis=1)
                ends[mine, side] = self.pairs.rows[link[mine]][at[mine]]
        return ends

    def _write_links(self, loops: Loops, verdict: Verdict) -> None:
        from pyspark.sql import functions as F

        counts = dict(zip((stage.CLOSED, stage.BROKEN, stage.OPEN), loops.counts(), strict=True))
        parts = []
        for i, (run, linked) in enumerate(zip(self.runs, self.linked, strict=True)):
            mine = self.pairs.pair == i
            columns = {"source_row": self.pairs.rows[mine, 0], "target_row": self.pairs.rows[mine, 1]}
            columns |= {"point_after": verdict.confidence[mine], **{k: c[mine] for k, c in counts.items()}}
            rows = stage.judged_links(linked, self.spark.createDataFrame(pa.table(columns)))
            rows = rows.withColumns({f"{name}_cloud": F.lit(run.pair[side]) for side, name in enumerate(SIDES)})
            parts.append(rows.selectExpr(*schemas.casts(schemas.JUDGED_LINKS)))
        self._write(_together(parts), "links")

    def _write_suggested(self, loops: Loops, verdict: Verdict, ends: np.ndarray) -> list[int]:
        """Write the links that open chains call for, one to one; returns how many by pair of clouds, in points."""
        parts = []
        for i, run in enumerate(self.runs):
            mine = loops.open_pair == i
            rows, place, through = np.unique(ends[mine], axis=0, return_inverse=True, return_counts=True)
            # Several clouds between: one of the chains being right is enough.
            doubt = np.log1p(-np.minimum(verdict.suggested[mine], SUREST))
            confidence = -np.expm1(np.bincount(place.ravel(), doubt, len(rows)))
            sure = np.flatnonzero(confidence >= self.settings.consensus.min_confidence)
            chosen = sure[one_to_one(rows[sure, 0], rows[sure, 1], confidence[sure])]
            columns: dict[str, Any] = {"confidence": confidence[chosen], "through": through[chosen]}
            for side, name in enumerate(SIDES):
                columns[f"{name}_cloud"] = np.full(len(chosen), run.pair[side])
                columns[f"{name}_row"] = rows[chosen, side]
            parts.append(pa.table(columns))
        found = stage.suggested_ids(self.spark.createDataFrame(pa.concat_tables(parts)), self._ids())
        self._write(found.selectExpr(*schemas.casts(schemas.SUGGESTED)), "suggested")
        return [len(part) for part in parts]

    def _write_groups(self, verdict: Verdict) -> tuple[Counter[int], int]:
        """Write the groups; returns how many span how many clouds, and how many links would have joined two of one."""
        clouds = np.array([run.pair for run in self.runs])[self.pairs.pair]
        enough = verdict.confidence >= self.settings.consensus.min_confidence
        ends = np.stack([clouds[enough], self.pairs.rows[enough]], axis=2).reshape(-1, 2)
        points, place = np.unique(ends, axis=0, return_inverse=True)
        place = place.reshape(-1, 2)
        group, left_out = groups(points[:, 0], place[:, 0], place[:, 1], verdict.confidence[enough])
        inside = group >= 0
        columns = {"group": group[inside], "cloud": points[inside, 0], "row": points[inside, 1]}
        members = self.spark.createDataFrame(pa.table(columns))
        found = stage.group_ids(members, self._ids()).selectExpr(*schemas.casts(schemas.GROUPS))
        self._write(found, "groups")
        spans = Counter(np.bincount(group[inside]).tolist())
        return spans, int(left_out.sum())

    def _figures(self, verdict: Verdict, suggested: list[int]) -> list[dict[str, Any]]:
        rows = stage.tally(tables.read(self.spark, f"{self.out}/links")).collect()  # one row per pair of clouds
        known = {(row["source_cloud"], row["target_cloud"]): row.asDict() for row in rows}
        empty = {**dict.fromkeys(("links", "closed", "broken", "open"), 0), "confidence_before": None,
                 "confidence": None}  # fmt: skip
        figures = []
        for i, run in enumerate(self.runs):
            clouds = {"source_cloud": run.pair[0], "target_cloud": run.pair[1]}
            found = float(verdict.found[i]) if i in self.in_loops else None
            figures.append({**clouds, **known.get(run.pair, empty), "suggested": suggested[i], "found": found})
        return figures

    def _ids(self) -> DataFrame:
        """The ids of all clouds: cloud, id, row, copies."""
        folders = {n: c.folder for run in self.runs for n, c in zip(run.numbers, run.clouds, strict=True)}
        return _together(
            tables.read(self.spark, f"{folder}/ids").selectExpr(f"CAST({n} AS BIGINT) AS cloud", "id", "row", "copies")
            for n, folder in folders.items()
        )

    def _write(self, rows: DataFrame, name: str) -> None:
        tables.replace(rows.sort(*rows.columns[:4]), f"{self.out}/{name}")


def _check_apart(folders: Iterable[str], out: str) -> None:
    for folder in folders:
        if tables.overlap(folder, out):
            raise InputError("the output folder must be apart from the link runs and clouds, which are never changed",
                             got=f"{folder}, output {out}")  # fmt: skip


def _together(parts: Iterable[DataFrame]) -> DataFrame:
    return functools.reduce(lambda one, other: one.unionByName(other), parts)


def _key(runs: list[LinkRun], settings: Settings) -> str:
    """Hash of everything that can change the result; the writer tells apart two runs of one key."""
    parts = {"cycles": sorted([run.run_key, run.writer] for run in runs), "kappa": settings.cycles.kappa,
             "min_confidence": settings.consensus.min_confidence, "version": __version__}  # fmt: skip
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
