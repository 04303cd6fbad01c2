"""The link run: two clouds and a few known pairs in, links with their evidence out.

prepare both clouds -> read and check the seeds -> rounds -> take-off test -> links
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from veclink import backends, schemas, shards, tables
from veclink.backends import Engine
from veclink.errors import InputError, NotTakenOff
from veclink.kernels import cell_matches
from veclink.kernels.csls import list_length
from veclink.kernels.propose import working_bytes
from veclink.kernels.views import schedule
from veclink.runs import record as records
from veclink.runs.answer import cloud_counts, counts_and_estimates, outcome, write_links
from veclink.runs.consensus import Consensus
from veclink.runs.loop import Loop
from veclink.runs.opening import SIDES, LinkRequest, Opening
from veclink.runs.prepare import PreparedCloud
from veclink.runs.progress import Progress, Quiet
from veclink.runs.rounds import Rounds
from veclink.runs.seeds import Seeds
from veclink.runtime import output_lock
from veclink.settings import CONSENSUS, Settings
from veclink.shards import Shard
from veclink.steps import step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LinkRequest", "link"]


def link(
    spark: SparkSession, request: LinkRequest, settings: Settings, progress: Progress | None = None
) -> dict[str, Any]:
    """Run the linking loop to its end, or go on with one that was stopped, or return a finished one's report.

    Returns the report (the object `veclink link --json` prints). Raises InputError, RunLocked, or NotTakenOff when the
    links cannot be trusted; `links` then holds the seeds only.
    """
    request = request.resolved()
    with output_lock(request.out):
        return _Run(spark, request, settings, progress or Quiet()).run()


class _Run:
    def __init__(self, spark: SparkSession, request: LinkRequest, settings: Settings, progress: Progress) -> None:
        self.spark, self.request, self.settings, self.progress = spark, request, settings, progress
        self.started = time.monotonic()

    def run(self) -> dict[str, Any]:
        opening = Opening(self.spark, self.request, self.settings, self.progress)
        out, inputs = self.request.out, opening.inputs()
        key = records.run_key(inputs, self.settings)
        record = records.claim(self.spark, out, key, self.request.overwrite)
        if record is None or record.status == records.RUNNING:
            self.clouds, self.seeds = opening.clouds(), opening.seeds()
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
        kind: type[Loop] = Consensus if self.settings.link.preset == CONSENSUS else Rounds
        loop = kind(self.spark, self.request.out, record, (local[0], local[1]), self.seeds.anchors, engine)
        try:
            loop.run(self.progress)
            answer = loop.answer()
            seeds, dropped = self._audited(loop)
        finally:
            for shard in local:
                shards.discard(shard)
        folders = (self.clouds[0].folder, self.clouds[1].folder)
        with step(self.spark, "links"):
            write_links(self.spark, self.request.out, folders, answer.promoted if answer.taken_off else None, seeds)
        return {
            "run_key": record.run_key,
            "out": self.request.out,
            **outcome(loop, answer),
            **counts_and_estimates(self.spark, self.request.out, seeds, answer),
            "seeds_dropped": dropped,
            "source": cloud_counts(self.clouds[0]),
            "target": cloud_counts(self.clouds[1]),
            "backend": engine.backend,
            "seconds": round(time.monotonic() - self.started, 1),
        }

    def _audited(self, loop: Loop) -> tuple[Seeds, list[dict[str, Any]]]:
        """The seeds that stood the audit, and those that did not, by name."""
        dropped = []
        for found in loop.audit.to_pylist():
            source_id, target_id = self.seeds.names[found["seed"]]
            ranks = {side: found[f"{side}_rank"] for side in SIDES}
            self.progress.note(
                f"warning: seed {source_id} - {target_id} looks wrong and was dropped: {ranks['source']:.1%} of the "
                f"targets lie nearer to its source, {ranks['target']:.1%} of the sources nearer to its target"
            )
            names = {"source_id": source_id, "target_id": target_id}
            dropped.append({**names, "source_rank": ranks["source"], "target_rank": ranks["target"]})
        return self.seeds.without(set(loop.audit["seed"].to_pylist())), dropped

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
        need = self._task_bytes(rows, k) / 2**30
        self.progress.note(f"backend {backend}, at most {need:.2g} GiB of working memory a task")
        if need > link.view_memory_gib:
            raise InputError(
                f"a view could need more than link.view_memory_gib = {link.view_memory_gib:g} GiB",
                got=f"{need:.1f} GiB for {rows[0]} x {rows[1]} points",
                do="Link a part of them, or raise the limit if the executors can bear it",
            )
        spark = self.settings.spark
        return Engine(backend, spark.threads_per_task, k, link.bandwidth, spark.partitions)

    def _task_bytes(self, rows: list[int], k: int) -> int:
        """Working memory of a task at most."""
        settings, dims = self.settings, (self.clouds[0].dim, self.clouds[1].dim)
        if max(rows) > settings.link.tau_rows:
            seen = min(sum(rows), settings.cells.group_rows * settings.cells.probes)
            return cell_matches.working_bytes(seen, sum(rows), dims, settings.consensus.width)
        # The largest view there could be: every point of the smaller cloud linked.
        seeds = len(self.seeds.anchors)
        columns = max(schedule(max(min(rows), seeds), seeds, *settings.link.schedule).size, seeds)
        if settings.link.preset == CONSENSUS and settings.consensus.view_kind != "hash":
            columns = max(settings.consensus.width, *dims)
        return working_bytes(rows[0], rows[1], columns, k)
