"""The loop of preset `consensus`, round by round.

    seeds --soft maps of the whole clouds--> first anchors (again from those, where the maps agree on few)
    anchors --bags, affine maps--> candidates and decoys --evidence model, over the last rounds--> confidences
    confidences --surest--> next anchors, and at the end the links

Pairs are judged only by views that do not hold them, against a model of what anchors find when their partner is gone
(kernels/bags.py, kernels/decoys.py, kernels/evidence_model.py). The model sees the evidence of the last rounds
together: a round that errs is outvoted before its errors breed. The first anchors audit the seeds. Every round commits
twice to Delta: its verdicts, then its row in `iterations`; a run that was killed goes on behind the last round that
has both.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veclink import schemas, tables
from veclink.candidates import CANDIDATE_KEYS
from veclink.kernels import judging
from veclink.kernels.bags import first_rows
from veclink.kernels.estimates import Estimate, estimates, shared_by_seeds
from veclink.kernels.judging import Evidence, Judged, Pairs
from veclink.kernels.posterior import one_to_one
from veclink.kernels.recovery import Recovery, ahead
from veclink.kernels.seed_audit import wrong_seeds
from veclink.kernels.views import Anchors, RoundViews, contains
from veclink.runs import judged as judged_table
from veclink.runs.loop import Answer, Iteration, Loop, row_pairs
from veclink.runs.round_views import ViewMaker, evidence_of, pairs_of
from veclink.runs.scale import Scale
from veclink.settings import ConsensusSettings
from veclink.stages import seed_audit as audit_stage

FIRST_ANCHORS_MIN = 30
# With fewer links the take-off test says nothing.
RECOVERY_MIN = 20
# More likely right than wrong: the links that the take-off test is made with.
LIKELY = 0.5


class Consensus(Loop):
    """The loop of this package: it also keeps what the last rounds have found."""

    _takeoff_settings = ("consensus.takeoff_recovery", "consensus.takeoff_seeds", "consensus.takeoff_ahead")

    def _begin(self) -> None:
        self._how = self._settings.consensus
        self._window: list[Evidence] = []
        self._views = ViewMaker(self._settings, self._clouds[0].rows)
        self._scale = Scale(self._spark, self._clouds, self._settings, self._engine, self._out)

    @property
    def _rounds_max(self) -> int:
        return self._how.rounds_max

    @property
    def _rounds_min(self) -> int:
        # The first judged round stands on the start's anchors, of which many can be wrong: no answer is made of it.
        return start_rounds(self.history, self._how)[0] + 1 + self._how.window

    @property
    def _stop_change(self) -> float:
        # In small clouds the number of anchors swings by more: that of a count, by its square root.
        return max(self._how.stop_change, math.sqrt(len(self.anchors.rows)) / self.history[-1].sources)

    def _over(self) -> bool:
        if self.stranded or not self._scale.in_parts:
            return super()._over() or self.stranded
        return self._scale.over(self.history)

    def _sources(self, number: int) -> int:
        """Source rows that take part in a round, done or next."""
        if number <= len(self.history):
            return self.history[number - 1].sources
        return self._scale.sources(self.history, self.settled, self._rounds_max)

    @property
    def stranded(self) -> bool:
        """Whether a round has left nothing to go on with."""
        return bool(self.history) and not len(self.anchors)

    def answer(self) -> Answer:
        """Pairs with their confidence by the evidence of the last rounds, one to one, best first."""
        judged = self._judged(self._window, self.history[-1].sources)
        chosen = one_to_one(judged.pairs.source, judged.pairs.target, judged.confidence)
        pairs, confidence = judged.pairs.take(chosen), judged.confidence[chosen]
        # Whether a run took off does not depend on how sure its user wants to be.
        recovery, shared = self._recovery(_rows(pairs.take(confidence >= LIKELY)), judged)
        how = self._how
        enough = recovery.took_off(how.takeoff_recovery, how.takeoff_seeds, how.takeoff_ahead)
        taken_off = not self.stranded and enough
        floor = judging.confidence_floor(confidence, self._how.min_confidence, self._how.target_precision)
        kept = confidence >= floor
        links = judged_table.columns(pairs.take(kept), confidence[kept])
        margin = np.minimum(links["source_lead"].to_numpy(), links["target_lead"].to_numpy())
        links = links.append_column("margin", pa.array(margin))
        _, slack = judged.wrong_from(floor)
        rows = min(self._free_rows(self.history[-1].sources))
        found = estimates(confidence, pairs.votes, kept, slack, rows, shared) if taken_off else None
        return Answer(links, recovery, taken_off, found.report() if found else {})

    def _recovery(self, links: np.ndarray, judged: Judged) -> tuple[Recovery, Estimate | None]:
        """What views of most of the links, and of no seed, find of the rest; and what the seeds say by it."""
        if len(links) < RECOVERY_MIN:
            return Recovery(None, None), None
        views = self._views.takeoff(links)
        rows = self._candidates(self._without_seeds(links), views, self.history[-1].sources)
        found = rows.filter(pc.field("role") == schemas.CANDIDATE)
        pairs, score = row_pairs(found), found["score_nano"].to_numpy() / found["votes"].to_numpy()
        again = float(contains(pairs, links).mean())
        seeds = self._seeds.seed_rows
        if not len(seeds):
            return Recovery(again, None), None
        of_seeds, of_links = (score[contains(known, pairs)] for known in (seeds, links))
        _, slack = judged.wrong_from(LIKELY)
        right = float(judged.of(pairs_of(rows, schemas.CANDIDATE, views, seeds)).sum())
        seen = len(of_seeds)
        recovery = Recovery(again, seen / len(seeds), seen, ahead(of_seeds, of_links))
        return recovery, shared_by_seeds(right, slack, seen, len(seeds))

    def _round(self, number: int) -> Iteration:
        begun = time.monotonic()
        if self._starting:
            done, rows = self._start_round()
        else:
            if not self._any_judged:
                self._audit()
            done, rows = self._judging_round(number)
        before = len(self.anchors)
        rows = rows.append_column("round", pa.array(np.full(len(rows), number, np.int32)))
        self._append("judged", rows, schemas.JUDGED_PAIRS)
        self._learn(rows, number)
        seconds = round(time.monotonic() - begun, 3)
        sources = self._sources(number)
        return replace(
            done, round=number, sources=sources, anchors_before=before, anchors=len(self.anchors), seconds=seconds
        )

    def _start_round(self) -> tuple[Iteration, pa.Table]:
        """Soft maps: what all of them agree on is believed first."""
        views = self._views.start(self.anchors.rows, len(self.history) + 1)
        found = self._asked(views, np.empty((0, 2), np.int64))
        agreed = judging.agreement(found.pairs, len(views.views))
        promoted = found.pairs.take(self._first(found.pairs, len(views.views), agreed))
        rows = judged_table.rows_of(found, judging.votes_alone(found.pairs), _rows(promoted))
        return self._done(views, found.pairs, agreed), rows

    def _judging_round(self, number: int) -> tuple[Iteration, pa.Table]:
        """Views out of bag, decoys, and a model that tells candidates from decoys."""
        views = self._views.judging(self.anchors.rows, number)
        found = self._asked(views, self.anchors.rows)
        judged = self._judged([*self._before(number), found], self._sources(number))
        most = int(self._how.growth * len(self.anchors)) + 10
        promoted = judged.pairs.take(judging.promoted(judged.pairs, judged.confidence, self._how.promote_floor, most))
        # A sample by chance: the surest alone would make maps for what is easy, and decoys of it.
        promoted = promoted.take(first_rows(promoted.source, self._how.anchors_max, self._link.random_seed))
        rows = judged_table.rows_of(found, judged.of(found.pairs), _rows(promoted))
        return self._done(views, found.pairs, _share(promoted)), rows

    def _judged(self, window: list[Evidence], sources: int) -> Judged:
        return judging.judge(judging.together(window), self._free_rows(sources), self._how.evidence)

    def _done(self, views: RoundViews, pairs: Pairs, recovery: float | None) -> Iteration:
        size = len(views.views[0].anchors) + len(self._seeds.seed_source)
        return Iteration(0, 0, len(views.views), size, 0, len(pairs), self._how.promote_floor, 0, recovery, 0.0)

    @property
    def _starting(self) -> bool:
        return not start_rounds(self.history, self._how)[1]

    @property
    def _any_judged(self) -> bool:
        return len(self.history) > start_rounds(self.history, self._how)[0]

    def _first(self, pairs: Pairs, maps: int, agreed: float) -> np.ndarray:
        if self._how.start == "unpaired" and agreed < self._how.agreement_min:
            return np.empty(0, np.int64)
        return judging.first_anchors(pairs, maps, self._how.start_share, FIRST_ANCHORS_MIN)

    def _free_rows(self, sources: int) -> tuple[int, int]:
        """Rows of either cloud that take part in a round and are no seed's."""
        taken = len(self._seeds.seed_rows)
        return sources - taken, self._clouds[1].rows - taken

    def _asked(self, views: RoundViews, without: np.ndarray) -> Evidence:
        """What the views find, and what (a, 2) anchors are matched with when asked without their partner."""
        found = self._candidates(self.anchors, views, self._sources(len(self.history) + 1))
        return evidence_of(found, views, without, self._seeds.seed_rows)

    def _candidates(self, anchors: Anchors, views: RoundViews, sources: int) -> pa.Table:
        found = self._scale.candidates(sources, self._seeds, anchors, views)
        return found.sort_by([(c, "ascending") for c in CANDIDATE_KEYS])

    def _audit(self) -> None:
        """Drop the seeds that the first anchors contradict. It is committed before the first round that is judged."""
        if not len(self._seeds.seed_source) or len(self.anchors.rows) < FIRST_ANCHORS_MIN or self._how.audit_limit == 1:
            return
        ranks = self._partner_ranks()
        wrong = wrong_seeds(ranks, (self._clouds[0].rows, self._clouds[1].rows), self._how.audit_limit)
        columns = {"seed": np.arange(len(ranks)), "source_rank": ranks[:, 0], "target_rank": ranks[:, 1]}
        table = pa.table({**columns, "dropped": wrong})
        self._append("seed_audit", table, schemas.SEED_AUDIT)
        self._drop_seeds(table)

    def _partner_ranks(self) -> np.ndarray:
        seeds = self._seeds.seed_source, self._seeds.seed_target
        how = self._how.ridge, self._how.width
        return audit_stage.partner_ranks(self._spark, self._clouds, self.anchors.rows, seeds, how)

    def _drop_seeds(self, audit: pa.Table) -> None:
        self.audit = audit.filter(pc.field("dropped"))
        self._seeds = self._seeds.keep_seeds(~audit["dropped"].to_numpy(zero_copy_only=False))
        self._take(self.anchors.rows)

    def _resume(self) -> None:
        # An audit whose round was not finished is made again, from the same anchors.
        if self._any_judged and tables.is_delta(self._spark, f"{self._out}/seed_audit"):
            self._drop_seeds(tables.read(self._spark, f"{self._out}/seed_audit").toArrow().sort_by("seed"))
        last = len(self.history)
        # One more than count: it says what the first of them has asked.
        first = max(last - self._how.window, 1)
        for number, rows in judged_table.rounds(self._spark, self._out, self.history[first - 1 :]):
            self._learn(rows, number)

    def _before(self, number: int) -> list[Evidence]:
        """Earlier rounds whose evidence counts in a round: what soft maps say is not of its kind and does not."""
        count, over = start_rounds(self.history[: number - 1], self._how)
        alike = number > 1 and self._sources(number) == self._sources(number - 1)
        before = self._window if over and number > count + 1 and alike else []
        return before[-self._how.window + 1 :] if self._how.window > 1 else []

    def _learn(self, rows: pa.Table, number: int) -> None:
        """Take a round's evidence into the window, and its promoted pairs as anchors."""
        found, anchors = judged_table.read(rows, self.anchors.rows)
        self._window = [*self._before(number), found]
        self._take(anchors)

    def _outlook(self) -> str:
        what = f"{self._views.maps} soft maps" if self._starting else f"{self._how.views} views"
        sources = self._sources(len(self.history) + 1)
        part = "" if sources == self._clouds[0].rows else f", {sources} of {self._clouds[0].rows} source rows"
        return f"{what} of {len(self.anchors)} anchors{part}"


def start_rounds(history: Sequence[Iteration], how: ConsensusSettings) -> tuple[int, bool]:
    """How many of the rounds so far are starts, and whether there are no more to come.

    Starts come first, and repeat while their maps agree too little: with few seeds, or unlike encoders, the first ones
    agree on few pairs; begun again from those they agree on more, until the anchors stop growing.
    """
    most = min(how.start_rounds_max, how.rounds_max - 1) if how.start == "seeds" else 1
    for count in range(1, min(len(history), most) + 1):
        enough = (history[0].recovery or 0.0) >= how.start_agreement
        still = count > 1 and history[count - 1].anchors <= (1 + how.start_growth) * history[count - 2].anchors
        if enough or still or count == most:
            return count, True
    return len(history), False


def _rows(pairs: Pairs) -> np.ndarray:
    return np.stack([pairs.source, pairs.target], axis=1)


def _share(chosen: Pairs) -> float | None:
    chances = int(chosen.opportunities.sum())
    return int(chosen.votes.sum()) / chances if chances else None
