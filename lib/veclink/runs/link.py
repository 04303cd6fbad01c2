"""The link run: two clouds and a few known pairs in, links with their evidence out.

prepare both clouds -> read and check the seeds -> rounds -> take-off test -> links
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from veclink import backends, schemas, shards, tables
from veclink.errors import InputError, NotTakenOff
from veclink.kernels.csls import list_length
from veclink.kernels.propose import working_bytes
from veclink.kernels.views import schedule
from veclink.runs import record as records
from veclink.runs import seeds as seed_reader
from veclink.runs.answer import cloud_counts, counts_and_estimates, outcome, write_links
from veclink.runs.consensus import Consensus
from veclink.runs.prepare import PreparedCloud, open_cloud, prepare
from veclink.runs.progress import Progress, Quiet
from veclink.runs.rounds import Rounds
from veclink.runtime import output_lock
from veclink.settings import Settings
from veclink.shards import Shard
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

    def resolved(self) -> LinkRequest:
        """The same request with local paths made absolute."""
        at = tables.resolve
        anchors = None if self.anchors is None else (at(self.anchors[0]), at(self.anchors[1]))
        seeds = None if self.seeds is None else at(self.seeds)
        return replace(
            self, source=at(self.source), target=at(self.target), out=at(self.out), seeds=seeds, anchors=anchors
        )


def link(
    spark: SparkSession, request: LinkRequest, settings: Settings, progress: Progress | None = None
) -> dict[str, Any]:
    """Run the linking loop to its end, or go on with one that was stopped, or return a finished one's report.

    Returns the report (the object `veclink link --json` prints). Raises InputError, RunLocked, or NotTakenOff when the
    links are no better than chance; `links` then holds the seeds only.
    """
    request = request.resolved()
    with output_lock(request.out):
        return _Run(spark, request, settings, progress or Quiet()).run()


class _Run:
    def __init__(self, spark: SparkSession, request: LinkRequest, settings: Settings, progress: Progress) -> None:
        self.spark, self.request, self.settings, self.progress = spark, request, settings, progress
        self.started = time.monotonic()

    def run(self) -> dict[str, Any]:
        self._check_request()
        self.pairs = (
            None if self.request.seeds is None else seed_reader.read_pairs(self.spark, self.request.seeds, "seeds")
        )
        out, inputs = self.request.out, self._inputs()
        record = records.claim(self.spark, out, inputs, self.settings, self.request.overwrite)
        if record is None or record.status == records.RUNNING:
            self.clouds = self._clouds()
            self.seeds = self._seeds()
            if record is None:
                inputs = replace(inputs, seed_rows=self.seeds.anchors.seed_rows.tolist())
                record = records.start(self.spark, out, inputs, self.settings)
            self._write_rejects()
            report = self._link(record)
            status = records.DONE if report["taken_off"] else records.NOT_TAKEN_OFF
            record = replace(record, status=status, report=report)
            records.write(self.spark, out, record)
        else:
            self.progress.note(f"run {record.run_key} was finished before; this is its stored result")
        if record.status == records.NOT_TAKEN_OFF:
            raise NotTakenOff(record.report)
        return record.report

    def _check_request(self) -> None:
        request = self.request
        given = (request.seeds is not None) + (request.anchors is not None)
        link, start = self.settings.link, self.settings.consensus.start
        unpaired = link.method == "consensus" and start == "unpaired"
        if given > 1 or (given == 0 and not unpaired):
            raise InputError(
                "a run starts from seeds or from two anchor tables",
                do="Give exactly one of the two, or neither with consensus.start=unpaired",
            )
        if request.source == request.target:
            raise InputError("source and target are the same table", got=request.source, do="Give two clouds")
        for location in (request.source, request.target, request.seeds, *(request.anchors or ())):
            if location is not None and tables.overlap(location, request.out):
                raise InputError(
                    "the output folder must be apart from the inputs, which are never changed",
                    got=f"input {location}, output {request.out}",
                )

    def _inputs(self) -> records.Inputs:
        """What names this run, from versions alone: nothing is prepared or written yet."""
        request = self.request
        folders, versions = [], {}
        for side, location in zip(SIDES, (request.source, request.target), strict=True):
            cloud = self._prepared(location)
            folders.append(location if cloud else side)
            versions[side] = cloud.prepare_key if cloud else tables.read_input(self.spark, location).version
        if versions["source"] == versions["target"]:
            raise InputError("source and target are the same table", got=request.source, do="Give two clouds")
        if self.pairs is not None:
            versions["seeds"] = seed_reader.digest(self.pairs)
        for side, location in zip(SIDES, request.anchors or (), strict=False):
            versions[f"anchor_{side}"] = tables.read_input(self.spark, location).version
        return records.Inputs(folders[0], folders[1], versions, [])

    def _prepared(self, location: str) -> PreparedCloud | None:
        return open_cloud(self.spark, location) if tables.is_path(location) else None

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
        cloud = self._prepared(location)
        if cloud is not None:
            self._check_prepared(cloud, encoder)
        else:
            cloud = prepare(self.spark, location, f"{self.request.out}/{side}", self.settings, encoder)
        self.progress.note(
            f"{side}: {cloud.rows_kept} vectors of dimension {cloud.dim}, {cloud.rows_rejected} rejected, "
            f"{cloud.duplicate_rows} exact duplicates"
        )
        for warning in cloud.warnings:
            self.progress.note(f"warning: {side}: {warning}")
        return cloud

    def _check_prepared(self, cloud: PreparedCloud, encoder: str | None) -> None:
        dim = self.settings.prepare.dim
        if (encoder is not None and encoder != cloud.encoder) or dim not in (None, cloud.dim):
            raise InputError(
                f"{cloud.folder} was prepared as encoder {cloud.encoder}, dimension {cloud.dim}",
                got=f"encoder {encoder}, prepare.dim {dim}",
                do="Leave these options out for a prepared cloud, or prepare it again",
            )

    def _seeds(self) -> seed_reader.Seeds:
        link = self.settings.link
        if self.pairs is not None:
            seeds = seed_reader.from_pairs(self.spark, self.pairs, self.clouds, link)
        elif self.request.anchors is None:
            seeds = seed_reader.nothing([c.dim for c in self.clouds])
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
        loop = Consensus if self.settings.link.method == "consensus" else Rounds
        rounds = loop(self.spark, self.request.out, record, (local[0], local[1]), self.seeds.anchors, engine)
        try:
            rounds.run(self.progress)
            recovery = rounds.recovery()
        finally:
            for shard in local:
                shards.discard(shard)
        taken_off = rounds.taken_off(recovery)
        own = {"recovery": recovery.pairs, "seed_recovery": recovery.seeds, **rounds.estimates()}
        folders = (self.clouds[0].folder, self.clouds[1].folder)
        write_links(self.spark, self.request.out, folders, rounds.promoted if taken_off else None, self.seeds)
        return {
            "run_key": record.run_key,
            "out": self.request.out,
            **outcome(rounds, recovery),
            **counts_and_estimates(self.spark, self.request.out, self.seeds, own),
            "source": cloud_counts(self.clouds[0]),
            "target": cloud_counts(self.clouds[1]),
            "backend": engine.backend,
            "seconds": round(time.monotonic() - self.started, 1),
        }

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
        # The largest view there could be: every point of the smaller cloud linked.
        seeds = len(self.seeds.anchors)
        columns = max(schedule(max(min(rows), seeds), seeds, *link.schedule).size, seeds)
        if link.method == "consensus" and self.settings.consensus.view_kind != "hash":
            columns = max(self.settings.consensus.width, *[c.dim for c in self.clouds])
        need = working_bytes(rows[0], rows[1], columns, k) / 2**30
        self.progress.note(f"backend {backend}, at most {need:.2g} GiB of working memory a task")
        if need > link.view_memory_gib:
            raise InputError(
                f"a view could need more than link.view_memory_gib = {link.view_memory_gib:g} GiB",
                got=f"{need:.1f} GiB for {rows[0]} x {rows[1]} points",
                do="Link a part of them, or raise the limit if the executors can bear it",
            )
        spark = self.settings.spark
        return Engine(backend, spark.threads_per_task, k, link.bandwidth, spark.partitions)
