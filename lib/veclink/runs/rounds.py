"""The loop of a link run, round by round.

    views from the anchors -> every view proposes pairs -> votes by pair -> posterior, threshold -> promoted anchors

Geometric Embedding Hashing, vector-linking paper, sections 3 and 4. Every round commits twice to Delta (its evidence,
then its row in `iterations`); a run that was killed goes on behind the last round that has both.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from veclink import schemas, tables
from veclink.kernels.posterior import one_to_one, otsu_threshold, posterior_mean
from veclink.kernels.views import Schedule, View, schedule, two_halves
from veclink.runs.progress import Progress
from veclink.runs.record import Record
from veclink.runs.seeds import MIN_SEEDS
from veclink.settings import LinkSettings
from veclink.shards import Shard
from veclink.stages import evidence as evidence_stage
from veclink.stages import propose as propose_stage
from veclink.stages.propose import Anchors, Engine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Iteration:
    """One finished round, as it stands in the `iterations` table (schemas.ITERATIONS).

    recovery: share of the views without a promoted pair among their anchors that proposed it all the same; None where
    no view was without it.
    """

    round: int
    views: int
    view_size: int
    anchors_before: int
    pairs_proposed: int
    threshold: float
    anchors: int
    recovery: float | None
    seconds: float


@dataclass(frozen=True)
class Recovery:
    """The take-off test: shares found again from one half of the pairs, 0 to 1.

    pairs: of the other half. seeds: of the seeds in the clouds; None where there are none or they took part.
    """

    pairs: float
    seeds: float | None


def stored_iterations(spark: SparkSession, out: str) -> list[Iteration]:
    """The finished rounds of a run, in order."""
    if not tables.is_delta(spark, f"{out}/iterations"):
        return []
    rows = tables.read(spark, f"{out}/iterations").toArrow().to_pylist()
    return sorted((Iteration(**r) for r in rows), key=lambda i: i.round)


def standing(spark: SparkSession, out: str, views: Sequence[int], link: LinkSettings) -> DataFrame:
    """All candidate pairs after a round (schemas.STANDING). views: of every round up to and with this one."""
    evidence = tables.read(spark, f"{out}/evidence")
    return evidence_stage.standing(evidence, views, link.posterior_update, link.evidence == "out_of_bag")


def promote(pairs: DataFrame, threshold: float, seed_rows: np.ndarray) -> pa.Table:
    """Pairs at or above the threshold, one to one, best first, with their `confidence`; none touches a seed's row."""
    table = evidence_stage.at_or_above(pairs, threshold)
    source, target = table["source_row"].to_numpy(), table["target_row"].to_numpy()
    free = ~np.isin(source, seed_rows[:, 0]) & ~np.isin(target, seed_rows[:, 1])
    table = table.filter(pa.array(free))
    confidence = posterior_mean(table["votes"].to_numpy(), table["opportunities"].to_numpy())
    table = table.append_column("confidence", pa.array(confidence))
    return table.take(pa.array(one_to_one(source[free], target[free], confidence)))


class Rounds:
    """The state between rounds: anchors, history, and the pairs promoted last."""

    def __init__(
        self,
        spark: SparkSession,
        out: str,
        record: Record,
        clouds: tuple[Shard, Shard],
        seeds: Anchors,
        engine: Engine,
    ) -> None:
        """Start behind the last round that `out` holds of this run."""
        self._spark, self._out, self._writer, self._clouds = spark, out, record.writer, clouds
        self._seeds, self._engine, self._link = seeds, engine, record.settings.link
        link = self._link
        small = min(c.rows for c in clouds) <= link.small_rows
        self._rounds_max = link.rounds_max_small if small else link.rounds_max
        self.anchors = seeds
        self.history = stored_iterations(spark, out)
        if self.history:
            last = self.history[-1]
            pairs = standing(spark, out, [i.views for i in self.history], link)
            self._take(promote(pairs, last.threshold, seeds.seed_rows))

    def run(self, progress: Progress) -> None:
        """Go on until the anchors stand still or the rounds are used up."""
        if self.history:
            progress.note(f"going on behind round {len(self.history)}: {len(self.anchors)} anchors")
        while not self.settled and len(self.history) < self._rounds_max:
            progress.step(self._outlook())
            self._round()
            progress.note(line(self.history[-1]))

    @property
    def settled(self) -> bool:
        """Whether the share of linked source points has stood still for `stop_rounds` rounds."""
        sizes = [i.anchors / self._clouds[0].rows for i in self.history[-self._link.stop_rounds - 1 :]]
        changes = [abs(b - a) for a, b in itertools.pairwise(sizes)]
        return len(changes) == self._link.stop_rounds and max(changes) < self._link.stop_change

    def estimates(self) -> dict[str, float | None]:
        """What the loop says of its answer as a whole: nothing, its posteriors are no probabilities of being right."""
        return {}

    def taken_off(self, recovery: Recovery) -> bool:
        """Whether the pairs support each other."""
        return recovery.pairs >= self._link.takeoff_recovery

    def recovery(self) -> Recovery:
        """Share of the pairs that are found again when only the other half of them are anchors, 0 to 1.

        The take-off test: right pairs support each other, wrong ones only themselves.
        """
        rows = np.concatenate([self._seeds.seed_rows, self.anchors.rows])
        if len(rows) < 2 * MIN_SEEDS:
            return Recovery(0.0, None)
        views = two_halves(len(rows), self._link.random_seed)
        empty = [np.empty((0, c.dim), np.float32) for c in self._clouds]
        pairs = Anchors(empty[0], empty[1], np.empty((0, 2), np.int64), rows)
        found = propose_stage.proposals(self._spark, self._clouds, pairs, views, self._engine).toArrow()
        found = found.filter(
            propose_stage.contains(rows, np.stack([found[c].to_numpy() for c in schemas.ROWS], axis=1))
        )
        again = int(found["proposals"].to_numpy().sum() - found["self_votes"].to_numpy().sum())
        return Recovery(again / len(rows), None)

    def _round(self) -> None:
        begun = time.monotonic()
        number, before, plan = len(self.history) + 1, len(self.anchors), self._plan()
        key = (self._link.random_seed, number)
        views = propose_stage.plan(self._spark, self._clouds[0], self.anchors, plan, key)
        self._commit_evidence(number, plan.views, views)
        pairs = standing(self._spark, self._out, [*[i.views for i in self.history], plan.views], self._link)
        votes, opportunities, count = evidence_stage.tally(pairs)
        threshold = otsu_threshold(posterior_mean(votes, opportunities), count, self._link.posterior_bins)
        self._take(promote(pairs, threshold, self._seeds.seed_rows))
        done = Iteration(
            round=number,
            views=plan.views,
            view_size=len(views[0].anchors) + len(self._seeds.seed_source),
            anchors_before=before,
            pairs_proposed=int(count.sum()),
            threshold=threshold,
            anchors=len(self.anchors),
            recovery=_share(self.promoted),
            seconds=round(time.monotonic() - begun, 3),
        )
        frame = self._spark.createDataFrame([asdict(done)], schemas.ITERATIONS)
        tables.append_once(frame, f"{self._out}/iterations", self._writer, number)
        self.history.append(done)

    def _plan(self) -> Schedule:
        link, seeds = self._link, len(self._seeds.seed_source)
        return schedule(len(self.anchors), seeds, *link.schedule)

    def _commit_evidence(self, number: int, count: int, views: list[View]) -> None:
        from pyspark.sql import functions as F

        rows = propose_stage.proposals(self._spark, self._clouds, self.anchors, views, self._engine)
        rows = rows.withColumn("round", F.lit(number)).withColumn("views", F.lit(count))
        rows = rows.select(*schemas.columns(schemas.EVIDENCE))
        tables.append_once(rows, f"{self._out}/evidence", self._writer, number)

    def _take(self, promoted: pa.Table) -> None:
        self.promoted = promoted
        rows = np.stack([promoted["source_row"].to_numpy(), promoted["target_row"].to_numpy()], axis=1)
        seeds = self._seeds
        self.anchors = Anchors(seeds.seed_source, seeds.seed_target, seeds.seed_rows, rows)

    def _outlook(self) -> str:
        plan, left = self._plan(), ""
        if self.history:
            rest = self._rounds_max - len(self.history)
            left = f", at most {rest * self.history[-1].seconds:.0f} s left"
        return f"round {len(self.history) + 1}: {plan.views} views of {plan.size} anchors{left} ..."


def _share(promoted: pa.Table) -> float | None:
    chances = int(promoted["recent_opportunities"].to_numpy().sum())
    votes = int(promoted["recent_votes"].to_numpy().sum())
    return votes / chances if chances else None


def line(done: Iteration) -> str:
    """A finished round in one line."""
    recovery = "" if done.recovery is None else f", recovery {done.recovery:.2f}"
    return (
        f"round {done.round}: {done.views} views of {done.view_size} anchors, {done.pairs_proposed} pairs, "
        f"threshold {done.threshold:.2f}, {done.anchors} anchors{recovery}, {done.seconds:.1f} s"
    )
