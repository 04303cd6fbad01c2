"""The loop of preset `consensus`, round by round.

    seeds --soft maps of the whole clouds--> first anchors
    anchors --balanced bags, affine maps--> candidates and decoys --evidence model--> confidences --> next anchors

Pairs are judged only by views that do not hold them, against a model of what objects without a partner find
(kernels/bags.py, kernels/evidence_model.py). The answer averages the last rounds, one per fold, so that every pair is
judged in several rounds that did not hide it. Every round commits twice to Delta: its verdicts, then its row in
`iterations`; a run that was killed goes on behind the last round that has both.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from veclink import schemas, tables
from veclink.kernels import judging
from veclink.kernels.bags import Hidden, balanced_bags, hidden_fold
from veclink.kernels.judging import Judged, Pairs
from veclink.kernels.posterior import one_to_one
from veclink.kernels.spaces import Comparison
from veclink.kernels.views import View, two_halves
from veclink.runs import judged as judged_table
from veclink.runs.progress import Progress
from veclink.runs.record import Record
from veclink.runs.rounds import Iteration, Recovery, line, stored_iterations
from veclink.runs.seeds import MIN_SEEDS
from veclink.shards import Shard
from veclink.stages import propose as propose_stage
from veclink.stages.propose import FEATURES, NANO, Anchors, Engine, RoundViews

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTHING_HIDDEN = Hidden(np.empty(0, np.int64), np.empty(0, np.int64))
FIRST_ANCHORS_MIN = 30


class Consensus:
    """The state between rounds: anchors with their confidence, history, and the last rounds' verdicts."""

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
        self._seeds, self._engine = seeds, engine
        self._link, self._how = record.settings.link, record.settings.consensus
        self.history = self._stored()
        self._window: list[Judged] = []
        self._take(np.empty((0, 2), np.int64), np.empty(0))
        if self.history:
            self._read_back()

    def _stored(self) -> list[Iteration]:
        return stored_iterations(self._spark, self._out)

    def run(self, progress: Progress) -> None:
        """Go on until the anchors stand still or the rounds are used up."""
        if self.history:
            progress.note(f"going on behind round {len(self.history)}: {len(self.anchors)} anchors")
        while not self.settled and not self._stranded and len(self.history) < self._how.rounds_max:
            progress.step(self._outlook())
            self._round()
            progress.note(line(self.history[-1]))

    @property
    def settled(self) -> bool:
        """Whether the anchors stand still, and every fold has had its turn since the first round.

        The share of linked source points must have changed little for `link.stop_rounds` rounds.
        """
        quiet, link = self._how.folds, self._link
        if len(self.history) <= quiet:
            return False
        sizes = [i.anchors / self._clouds[0].rows for i in self.history[-link.stop_rounds - 1 :]]
        changes = [abs(b - a) for a, b in itertools.pairwise(sizes)]
        return len(changes) == link.stop_rounds and max(changes) < self._how.stop_change

    @property
    def _stranded(self) -> bool:
        """Whether a round has left nothing to go on with."""
        return bool(self.history) and not len(self.anchors)

    @property
    def promoted(self) -> pa.Table:
        """The answer: pairs with their mean confidence over the last rounds, one to one, best first."""
        pairs, confidence = judging.average(self._window)
        chosen = one_to_one(pairs.source, pairs.target, confidence)
        pairs, confidence = pairs.take(chosen), confidence[chosen]
        kept = confidence >= self._floor(confidence)
        table = judged_table.columns(pairs.take(kept), confidence[kept])
        margin = np.minimum(table["source_lead"].to_numpy(), table["target_lead"].to_numpy())
        return table.append_column("margin", pa.array(margin))

    def estimates(self) -> dict[str, float | None]:
        """What the confidences say of the whole answer: precision, recall, shared objects; seeds not counted."""
        if self._stranded:
            return {}
        pairs, confidence = judging.average(self._window)
        confidence = confidence[one_to_one(pairs.source, pairs.target, confidence)]
        kept = confidence >= self._floor(confidence)
        shared = float(confidence.sum())
        return {
            "precision": float(confidence[kept].mean()) if kept.any() else None,
            "recall": float(confidence[kept].sum()) / shared if shared else None,
            "shared": shared,
        }

    def recovery(self) -> Recovery:
        """What is found again when only one half of the links, and no seed, are anchors."""
        links, seeds = self.promoted, self._seeds.seed_rows
        rows = np.stack([links[c].to_numpy() for c in schemas.ROWS], axis=1)
        if len(rows) < 2 * MIN_SEEDS:
            return Recovery(0.0, None)
        empty = [np.empty((0, c.dim), np.float32) for c in self._clouds]
        halves = Anchors(empty[0], empty[1], np.empty((0, 2), np.int64), rows)
        views = RoundViews(two_halves(len(rows), self._link.random_seed), self._comparison(0), _no_rows())
        found = self._candidates(halves, views)
        pairs, votes = np.stack([found[c].to_numpy() for c in schemas.ROWS], axis=1), found["votes"].to_numpy()
        again = int(votes[propose_stage.contains(rows, pairs)].sum()) / len(rows)
        if not len(seeds):
            return Recovery(again, None)
        return Recovery(again, int(votes[propose_stage.contains(seeds, pairs)].sum()) / (2 * len(seeds)))

    def taken_off(self, recovery: Recovery) -> bool:
        """Whether the links support each other, and agree with the seeds, none of which helped to find them again."""
        seeds = 1.0 if recovery.seeds is None else recovery.seeds
        return recovery.pairs >= self._how.takeoff_recovery and seeds >= self._how.takeoff_seeds

    def _floor(self, confidence: np.ndarray) -> float:
        return judging.confidence_floor(confidence, self._link.min_confidence, self._link.target_precision)

    def _round(self) -> None:
        begun = time.monotonic()
        number, before = len(self.history) + 1, len(self.anchors)
        hidden = self._hidden(number)
        views = self._views(number, hidden)
        pairs = self._pairs(self._candidates(self.anchors, views), len(views.views))
        decoy = self._decoys(pairs, hidden)
        if number == 1:
            confidence = judging.votes_alone(pairs)
            chosen = self._first(pairs, len(views.views))
        else:
            confidence = judging.confidences(pairs, decoy)
            most = int(self._how.growth * before) + 10
            chosen = judging.promoted(pairs, confidence, self._how.promote_floor, most)
        self._commit(number, pairs, decoy, (confidence, chosen), hidden)
        done = Iteration(
            round=number,
            views=len(views.views),
            view_size=len(views.views[0].anchors) + len(self._seeds.seed_source),
            anchors_before=before,
            pairs_proposed=int((~decoy).sum()),
            threshold=self._how.promote_floor,
            anchors=len(self.anchors),
            recovery=_share(pairs.take(chosen)),
            seconds=round(time.monotonic() - begun, 3),
        )
        self._append("iterations", pa.Table.from_pylist([asdict(done)]), schemas.ITERATIONS)
        self.history.append(done)

    def _first(self, pairs: Pairs, maps: int) -> np.ndarray:
        if self._how.start == "unpaired" and judging.agreement(pairs, maps) < self._how.agreement_min:
            return np.empty(0, np.int64)
        return judging.first_anchors(pairs, maps, self._how.start_share, FIRST_ANCHORS_MIN)

    def _hidden(self, number: int) -> Hidden:
        if number == 1:
            return NOTHING_HIDDEN
        return hidden_fold(self.anchors.rows[:, 0], self._how.folds, self._link.random_seed, number)

    def _views(self, number: int, hidden: Hidden) -> RoundViews:
        if number == 1:
            none = np.empty(0, np.int64)
            views = [View(i, none, 1) for i in range(self._maps)]
            kind = "soft" if self._how.start == "seeds" else "unpaired"
            return RoundViews(views, Comparison(kind, key=(self._link.random_seed, 1)), _no_rows())
        free = np.setdiff1d(np.arange(len(self.anchors.rows)), hidden.all)
        key = (self._link.random_seed, number)
        bags = balanced_bags(len(free), self._how.views, self._how.bag_share, key)
        views = [View(i, free[bags[:, i]], 1) for i in range(self._how.views)]
        rows = self.anchors.rows
        return RoundViews(views, self._comparison(number), (rows[hidden.no_source, 0], rows[hidden.no_target, 1]))

    def _comparison(self, number: int) -> Comparison:
        how = self._how
        return Comparison(
            how.view_kind,
            self._link.bandwidth,
            ridge=how.ridge,
            width=how.width,
            penalty=how.penalty,
            key=(self._link.random_seed, number),
        )

    def _candidates(self, anchors: Anchors, views: RoundViews) -> pa.Table:
        found = propose_stage.candidates(self._spark, self._clouds, anchors, views, self._engine).toArrow()
        return found.sort_by([(c, "ascending") for c in schemas.ROWS])

    def _pairs(self, found: pa.Table, views: int) -> Pairs:
        source, target = (found[c].to_numpy() for c in schemas.ROWS)
        votes, held = found["votes"].to_numpy(), found["held"].to_numpy()
        seeds = self._seeds.seed_rows
        kept = (votes > 0) & ~np.isin(source, seeds[:, 0]) & ~np.isin(target, seeds[:, 1])
        sums = np.stack([found[f"{name}_nano"].to_numpy() for name in FEATURES], axis=1)
        features = sums[kept] / (NANO * votes[kept, None])
        return Pairs(source[kept], target[kept], votes[kept], views - held[kept], features)

    def _decoys(self, pairs: Pairs, hidden: Hidden) -> np.ndarray:
        rows = self.anchors.rows
        lonely = np.isin(pairs.source, rows[hidden.no_target, 0]), np.isin(pairs.target, rows[hidden.no_source, 1])
        return np.asarray(lonely[0] | lonely[1])

    def _commit(
        self, number: int, pairs: Pairs, decoy: np.ndarray, verdict: tuple[np.ndarray, np.ndarray], hidden: Hidden
    ) -> None:
        confidence, chosen = verdict
        judged = judged_table.columns(pairs, confidence)
        judged = judged.append_column("role", pa.array(np.where(decoy, judged_table.DECOY, judged_table.CANDIDATE)))
        flags = np.zeros(len(pairs), bool)
        flags[chosen] = True
        judged = judged.append_column("promoted", pa.array(flags))
        kept = self._kept_anchors(pairs.take(chosen), hidden)
        rows = pa.concat_tables([judged, kept.cast(judged.select(kept.column_names).schema)], promote_options="default")
        rows = rows.append_column("round", pa.array(np.full(len(rows), number, np.int32)))
        self._append("judged", rows, schemas.JUDGED_PAIRS)
        self._learn(rows)

    def _append(self, name: str, rows: pa.Table, ddl: str) -> None:
        frame = self._spark.createDataFrame(rows).selectExpr(*schemas.casts(ddl))
        tables.append_once(frame, f"{self._out}/{name}", self._writer, len(self.history) + 1)

    def _kept_anchors(self, chosen: Pairs, hidden: Hidden) -> pa.Table:
        """The hidden anchors: they could not be judged and stay, unless one of their rows has found a new partner."""
        rows, confidence = self.anchors.rows[hidden.all], self._confidence[hidden.all]
        free = ~np.isin(rows[:, 0], chosen.source) & ~np.isin(rows[:, 1], chosen.target)
        roles = [judged_table.NO_TARGET] * len(hidden.no_target) + [judged_table.NO_SOURCE] * len(hidden.no_source)
        return pa.table(
            {
                "source_row": pa.array(rows[:, 0], pa.int64()),
                "target_row": pa.array(rows[:, 1], pa.int64()),
                "confidence": pa.array(confidence, pa.float64()),
                "role": pa.array(roles, pa.string()),
                "promoted": pa.array(free),
            }
        )

    def _read_back(self) -> None:
        first = len(self.history) - self._how.folds + 1
        table = tables.read(self._spark, f"{self._out}/judged").where(f"round >= {first}").toArrow()
        for number in range(max(first, 1), len(self.history) + 1):
            mine = table.filter(pa.array(table["round"].to_numpy() == number))
            self._learn(mine.sort_by([(c, "ascending") for c in schemas.ROWS]))

    def _learn(self, rows: pa.Table) -> None:
        """Take a round's verdicts into the window, and its promoted pairs as anchors."""
        judged, anchors, confidence = judged_table.read(rows)
        self._window = [*self._window, judged][-self._how.folds :]
        self._take(anchors, confidence)

    def _take(self, rows: np.ndarray, confidence: np.ndarray) -> None:
        seeds = self._seeds
        self.anchors = Anchors(seeds.seed_source, seeds.seed_target, seeds.seed_rows, rows)
        self._confidence = confidence

    @property
    def _maps(self) -> int:
        return self._how.start_maps if self._how.start == "seeds" else self._how.unpaired_maps

    def _outlook(self) -> str:
        number, left = len(self.history) + 1, ""
        if number > 2:
            rest = self._how.rounds_max - len(self.history)
            left = f", at most {rest * self.history[-1].seconds:.0f} s left"
        what = f"{self._maps} soft maps" if number == 1 else f"{self._how.views} views"
        return f"round {number}: {what} of {len(self.anchors)} anchors{left} ..."


def _no_rows() -> tuple[np.ndarray, np.ndarray]:
    return np.empty(0, np.int64), np.empty(0, np.int64)


def _share(chosen: Pairs) -> float | None:
    chances = int(chosen.opportunities.sum())
    return int(chosen.votes.sum()) / chances if chances else None
