"""The loop of a link run, round by round.

    views from the anchors -> every view proposes pairs -> votes by pair -> posterior, threshold -> promoted anchors

Geometric Embedding Hashing, vector-linking paper, sections 3 and 4. Every round commits twice to Delta (its evidence,
then its row in `iterations`); a run that was killed goes on behind the last round that has both.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from veclink import schemas, tables
from veclink.kernels.posterior import one_to_one, otsu_threshold, posterior_mean
from veclink.kernels.recovery import Recovery
from veclink.kernels.views import Schedule, View, contains, schedule, two_halves
from veclink.runs.loop import Answer, Iteration, Loop, row_pairs
from veclink.runs.seeds import MIN_SEEDS
from veclink.settings import LinkSettings
from veclink.stages import evidence as evidence_stage
from veclink.stages import propose as propose_stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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


class Rounds(Loop):
    """The published loop: hashes of distances, votes, posteriors."""

    _takeoff_settings = ("link.takeoff_recovery",)

    @property
    def _rounds_max(self) -> int:
        small = min(c.rows for c in self._clouds) <= self._link.small_rows
        return self._link.rounds_max_small if small else self._link.rounds_max

    @property
    def _rounds_min(self) -> int:
        return 1

    @property
    def _stop_change(self) -> float:
        return self._link.stop_change

    def answer(self) -> Answer:
        """The pairs promoted last; they count if they support each other."""
        recovery = self.recovery()
        return Answer(self.promoted, recovery, (recovery.pairs or 0.0) >= self._link.takeoff_recovery, {})

    def recovery(self) -> Recovery:
        """Share of the pairs that are found again when only the other half of them are anchors, 0 to 1.

        The take-off test: right pairs support each other, wrong ones only themselves.
        """
        rows = np.concatenate([self._seeds.seed_rows, self.anchors.rows])
        if len(rows) < 2 * MIN_SEEDS:
            return Recovery(None, None)
        views = two_halves(len(rows), self._link.random_seed)
        pairs = self._without_seeds(rows)
        found = propose_stage.proposals(self._spark, self._clouds, pairs, views, self._engine).toArrow()
        found = found.filter(contains(rows, row_pairs(found)))
        again = int(found["proposals"].to_numpy().sum() - found["self_votes"].to_numpy().sum())
        return Recovery(again / len(rows), None)

    def _resume(self) -> None:
        pairs = standing(self._spark, self._out, [i.views for i in self.history], self._link)
        self._promote(pairs, self.history[-1].threshold)

    def _round(self, number: int) -> Iteration:
        begun = time.monotonic()
        before, plan = len(self.anchors), self._plan()
        key = (self._link.random_seed, number)
        views = propose_stage.plan(self._spark, self._clouds[0], self.anchors, plan, key)
        self._commit_evidence(number, plan.views, views)
        pairs = standing(self._spark, self._out, [*[i.views for i in self.history], plan.views], self._link)
        votes, opportunities, count = evidence_stage.tally(pairs)
        threshold = otsu_threshold(posterior_mean(votes, opportunities), count, self._link.posterior_bins)
        self._promote(pairs, threshold)
        return Iteration(
            round=number,
            sources=self._clouds[0].rows,
            views=plan.views,
            view_size=len(views[0].anchors) + len(self._seeds.seed_source),
            anchors_before=before,
            pairs_proposed=int(count.sum()),
            threshold=threshold,
            anchors=len(self.anchors),
            recovery=_share(self.promoted),
            seconds=round(time.monotonic() - begun, 3),
        )

    def _plan(self) -> Schedule:
        link, seeds = self._link, len(self._seeds.seed_source)
        return schedule(len(self.anchors), seeds, *link.schedule)

    def _commit_evidence(self, number: int, count: int, views: list[View]) -> None:
        from pyspark.sql import functions as F

        rows = propose_stage.proposals(self._spark, self._clouds, self.anchors, views, self._engine)
        rows = rows.withColumn("round", F.lit(number)).withColumn("views", F.lit(count))
        rows = rows.select(*schemas.columns(schemas.EVIDENCE))
        tables.append_once(rows, f"{self._out}/evidence", self._writer, number)

    def _promote(self, pairs: DataFrame, threshold: float) -> None:
        self.promoted = promote(pairs, threshold, self._seeds.seed_rows)
        self._take(row_pairs(self.promoted))

    def _outlook(self) -> str:
        plan = self._plan()
        return f"{plan.views} views of {plan.size} anchors"


def _share(promoted: pa.Table) -> float | None:
    chances = int(promoted["recent_opportunities"].to_numpy().sum())
    votes = int(promoted["recent_votes"].to_numpy().sum())
    return votes / chances if chances else None
