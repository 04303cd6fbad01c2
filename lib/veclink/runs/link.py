"""The link run: two clouds and a few known pairs in, links with their evidence out.

prepare both clouds -> read and check the seeds -> rounds -> take-off test -> links
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from veclink import backends, schemas, shards, tables
from veclink.errors import InputError, NotTakenOff
from veclink.kernels.csls import list_length
from veclink.kernels.propose import working_bytes
from veclink.runs import record as records
from veclink.runs import seeds as seed_reader
from veclink.runs.prepare import PreparedCloud, open_cloud, prepare
from veclink.runs.progress import Progress, Quiet
from veclink.runs.rounds import Rounds
from veclink.runtime import output_lock
from veclink.settings import Settings
from veclink.shards import Shard
from veclink.stages.links import link_ids
from veclink.stages.propose import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIDES = ("source", "target")


@dataclass(frozen=True)
class LinkRequest:
    """What to link. Locations are paths or catalog names; the folder of a prepared cloud is taken as it is.

    seeds: table of id pairs. anchors: two tables of anchor vectors paired by id. Exactly one of the two is given.
    encoders: names stamped on the clouds. overwrite: another run's tables in `out` may be replaced.
    """

    source: str
    target: str
    out: str
    seeds: str | None = None
    anchors: tuple[str, str] | None = None
    encoders: tuple[str | None, str | None] = (None, None)
    overwrite: bool = False


def link(
    spark: SparkSession, request: LinkRequest, settings: Settings, progress: Progress | None = None
) -> dict[str, Any]:
    """Run the linking loop to its end, or go on with one that was stopped, or return a finished one's report.

    Returns the report (the object `veclink link --json` prints). Raises InputError, RunLocked, or NotTakenOff when the
    links are no better than chance; `links` then holds the seeds only.
    """
    with output_lock(request.out):
        return _Run(spark, request, settings, progress or Quiet()).run()


class _Run:
    def __init__(self, spark: SparkSession, request: LinkRequest, settings: Settings, progress: Progress) -> None:
        self.spark, self.request, self.settings, self.progress = spark, request, settings, progress
        self.started = time.monotonic()

    def run(self) -> dict[str, Any]:
        self._check_request()
        self.clouds = self._clouds()
        self.seeds = self._seeds()
        out = self.request.out
        record = records.open_or_start(self.spark, out, self._inputs(), self.settings, self.request.overwrite)
        if record.status == records.RUNNING:
            self._write_rejects()
            report = self._link(record)
            status = records.DONE if report["taken_off"] else records.NOT_TAKEN_OFF
            record = replace(record, status=status, report=report)
            records.write(self.spark, out, record, self.settings)
        else:
            self.progress.note(f"run {record.run_key} was finished before; this is its stored result")
        if record.status == records.NOT_TAKEN_OFF:
            raise NotTakenOff(record.report["exit_reason"], do="Give more seeds, or clouds of more alike encoders")
        return record.report

    def _check_request(self) -> None:
        request = self.request
        if (request.seeds is None) == (request.anchors is None):
            raise InputError("a run starts from seeds or from two anchor tables", do="Give exactly one of the two")
        if request.source == request.target:
            raise InputError("source and target are the same table", got=request.source, do="Give two clouds")

    def _clouds(self) -> tuple[PreparedCloud, PreparedCloud]:
        request, link = self.request, self.settings.link
        source = self._cloud(request.source, "source", request.encoders[0])
        target = self._cloud(request.target, "target", request.encoders[1])
        if source.encoder is not None and source.encoder == target.encoder and source.dim != target.dim:
            raise InputError(
                f"both clouds are said to come from encoder {source.encoder}",
                got=f"dimensions {source.dim} and {target.dim}",
                do="Name the encoders apart",
            )
        largest = max(source.points, target.points)
        if largest > link.tau_rows:
            raise InputError(
                f"clouds above link.tau_rows = {link.tau_rows} points cannot be matched all with all",
                got=f"{largest} points",
                do="Link a part of them, or raise link.tau_rows if the executors can bear it",
            )
        return source, target

    def _cloud(self, location: str, side: str, encoder: str | None) -> PreparedCloud:
        self.progress.step(f"preparing {side}: {location} ...")
        cloud = open_cloud(self.spark, location) if tables.is_path(location) else None
        if cloud is None:
            cloud = prepare(self.spark, location, f"{self.request.out}/{side}", self.settings, encoder)
        self.progress.note(
            f"{side}: {cloud.rows_kept} vectors of dimension {cloud.dim}, {cloud.rows_rejected} rejected, "
            f"{cloud.duplicate_rows} exact duplicates"
        )
        for warning in cloud.warnings:
            self.progress.note(f"warning: {side}: {warning}")
        return cloud

    def _seeds(self) -> seed_reader.Seeds:
        request, link = self.request, self.settings.link
        if request.seeds is not None:
            seeds = seed_reader.from_pairs(self.spark, request.seeds, self.clouds, link)
        else:
            seeds = seed_reader.from_vectors(self.spark, self._anchor_clouds(), link)
        for warning in seeds.warnings:
            self.progress.note(f"warning: {warning}")
        return seeds

    def _anchor_clouds(self) -> tuple[PreparedCloud, PreparedCloud]:
        request = self.request
        assert request.anchors is not None  # _check_request has seen to it
        source = self._cloud(request.anchors[0], "anchor_source", request.encoders[0])
        target = self._cloud(request.anchors[1], "anchor_target", request.encoders[1])
        for side, anchors, cloud in zip(SIDES, (source, target), self.clouds, strict=True):
            if anchors.dim != cloud.dim:
                raise InputError(
                    f"{side} anchors and the {side} cloud must come from one encoder",
                    got=f"dimensions {anchors.dim} and {cloud.dim}",
                )
        return source, target

    def _inputs(self) -> records.Inputs:
        source, target = self.clouds
        versions = {"source": source.prepare_key, "target": target.prepare_key, "seeds": self.seeds.digest}
        return records.Inputs(source.folder, target.folder, versions, self.seeds.anchors.seed_rows.tolist())

    def _write_rejects(self) -> None:
        from pyspark.sql import functions as F

        if not any(c.rows_rejected for c in self.clouds):
            tables.replace(self.spark.createDataFrame([], schemas.LINK_REJECTS), f"{self.request.out}/rejects")
            return
        sides = [
            tables.read(self.spark, f"{c.folder}/rejects").select(F.lit(side).alias("side"), "id", "reason", "detail")
            for c, side in zip(self.clouds, SIDES, strict=True)
        ]
        tables.replace(sides[0].unionByName(sides[1]), f"{self.request.out}/rejects")

    def _link(self, record: records.Record) -> dict[str, Any]:
        local = tuple(self._shard(c) for c in self.clouds)
        engine = self._engine()
        rounds = Rounds(self.spark, self.request.out, record, (local[0], local[1]), self.seeds.anchors, engine)
        rounds.run(self.progress)
        recovery = rounds.recovery()
        for shard in local:
            shards.discard(shard)
        taken_off = recovery >= self.settings.link.takeoff_recovery
        self._write_links(rounds.promoted if taken_off else rounds.promoted.slice(0, 0))
        return self._report(record.run_key, rounds, recovery, taken_off, engine.backend)

    def _shard(self, cloud: PreparedCloud) -> Shard:
        files = tables.files(tables.read(self.spark, f"{cloud.folder}/points"))
        return Shard(tuple(files), cloud.points, cloud.dim, self.settings.spark.work_dir)

    def _engine(self) -> Engine:
        link = self.settings.link
        rows = [c.points for c in self.clouds]
        k = list_length(link.csls_k, *rows)
        if k < link.csls_k:
            self.progress.note(f"link.csls_k cut from {link.csls_k} to {k}, a tenth of the smaller cloud's points")
        backend = backends.choose(link.backend)
        most = int(link.view_fraction * min(rows)) + len(self.seeds.anchors)
        need = working_bytes(rows[0], rows[1], most, k) / 2**20
        self.progress.note(f"backend {backend}, at most about {need:.0f} MiB of working memory a task")
        spark = self.settings.spark
        return Engine(backend, spark.threads_per_task, k, link.bandwidth, spark.partitions)

    def _write_links(self, promoted: pa.Table) -> None:
        spark, folders = self.spark, [c.folder for c in self.clouds]
        columns = ["source_row", "target_row", "confidence", "votes", "opportunities", "score", "margin"]
        rows = promoted.select(columns)
        seed_rows = self.seeds.anchors.seed_rows
        # The seeds' own points: other ids that share their vectors are linked too.
        rows = pa.concat_tables([rows, _seed_points(seed_rows, rows.schema)])
        seeds = pa.table(
            {
                "source_id": pa.array([a for a, _ in self.seeds.pairs], pa.string()),
                "target_id": pa.array([b for _, b in self.seeds.pairs], pa.string()),
            }
        )
        ids = [tables.read(spark, f"{folder}/ids") for folder in folders]
        links = link_ids(spark.createDataFrame(rows), ids[0], ids[1], spark.createDataFrame(seeds))
        tables.replace(links.selectExpr(*schemas.casts(schemas.LINKS)), f"{self.request.out}/links")

    def _report(self, run_key: str, rounds: Rounds, recovery: float, taken_off: bool, backend: str) -> dict[str, Any]:
        links = tables.read(self.spark, f"{self.request.out}/links")
        found = links.where("NOT is_seed").select("source_id", "target_id", "confidence").toArrow()
        pairs = set(zip(found["source_id"].to_pylist(), found["target_id"].to_pylist(), strict=True))
        held = self.seeds.held_back
        floor = self.settings.link.takeoff_recovery
        if not taken_off:
            reason = (
                f"the run did not take off: with one half of its pairs as anchors, {recovery:.2f} of the other half "
                f"are found again, below link.takeoff_recovery = {floor}"
            )
        else:
            reason = "the links stand still" if rounds.settled else "all rounds are used up"
        confidence = found["confidence"].to_numpy()
        return {
            "run_key": run_key,
            "out": self.request.out,
            "taken_off": taken_off,
            "exit_reason": reason,
            "links": len(pairs),
            "seeds": len(self.seeds.anchors.seed_source),
            "source": _cloud_counts(self.clouds[0]),
            "target": _cloud_counts(self.clouds[1]),
            "rounds": len(rounds.history),
            "views": sum(i.views for i in rounds.history),
            "estimates": {
                "mean_confidence": float(np.mean(confidence)) if len(confidence) else None,
                "recovery": recovery,
                "held_back": len(held),
                "held_back_recovered": sum(p in pairs for p in held),
            },
            "backend": backend,
            "seconds": round(time.monotonic() - self.started, 1),
        }


def _cloud_counts(cloud: PreparedCloud) -> dict[str, Any]:
    return {
        "vectors": cloud.rows_kept,
        "dim": cloud.dim,
        "rejected": cloud.rows_rejected,
        "duplicates": cloud.duplicate_rows,
    }


def _seed_points(seed_rows: np.ndarray, schema: pa.Schema) -> pa.Table:
    n = len(seed_rows)
    values = {
        "source_row": pa.array(seed_rows[:, 0]),
        "target_row": pa.array(seed_rows[:, 1]),
        "confidence": pa.array(np.ones(n)),
    }
    return pa.table([values.get(f.name, pa.nulls(n, f.type)).cast(f.type) for f in schema], schema=schema)
