"""The loop of preset `consensus`, round by round.

    seeds --soft maps of the whole clouds--> first anchors
    anchors --bags, affine maps--> candidates and decoys --evidence model--> confidences
    confidences of the last rounds --mean--> next anchors, and at the end the links

Pairs are judged only by views that do not hold them, against a model of what anchors find when their partner is gone
(kernels/bags.py, kernels/decoys.py, kernels/evidence_model.py). Anchors are promoted from the mean over the last
rounds: a round that errs is outvoted before its errors breed. The first anchors audit the seeds. Every round commits
twice to Delta: its verdicts, then its row in `iterations`; a run that was killed goes on behind the last round that
has both.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veclink import schemas, tables
from veclink.kernels import judging
from veclink.kernels.bags import held_by, row_bags
from veclink.kernels.estimates import Estimates, estimates
from veclink.kernels.judging import Decoys, Judged, Pairs
from veclink.kernels.posterior import one_to_one
from veclink.kernels.seed_audit import wrong_seeds
from veclink.kernels.spaces import Comparison
from veclink.kernels.views import View
from veclink.runs import judged as judged_table
from veclink.runs.loop import Answer, Iteration, Loop, Recovery, row_pairs
from veclink.stages import propose as propose_stage
from veclink.stages import seed_audit as audit_stage
from veclink.stages.propose import FEATURES, NANO, Anchors, RoundViews

FIRST_ANCHORS_MIN = 30
# With fewer links the halves of the take-off test could be empty.
RECOVERY_MIN = 20
SECOND = 2


class Consensus(Loop):
    """The loop of this package: it also keeps the last rounds' verdicts."""

    def _begin(self) -> None:
        self._how = self._settings.consensus
        self._window: list[Judged] = []

    @property
    def _rounds_max(self) -> int:
        return self._how.rounds_max

    @property
    def _rounds_min(self) -> int:
        return self._how.window + 1  # the first round's verdicts are not averaged

    @property
    def _stop_change(self) -> float:
        return self._how.stop_change

    def _over(self) -> bool:
        return super()._over() or self._stranded

    @property
    def _stranded(self) -> bool:
        """Whether a round has left nothing to go on with."""
        return bool(self.history) and not len(self.anchors)

    def answer(self) -> Answer:
        """Pairs with their mean confidence over the last rounds, one to one, best first."""
        pairs, by_round = judging.together(self._window)
        confidence = by_round.mean(axis=1)
        chosen = one_to_one(pairs.source, pairs.target, confidence)
        pairs, confidence = pairs.take(chosen), confidence[chosen]
        floor = judging.confidence_floor(confidence, self._how.min_confidence, self._how.target_precision)
        kept = confidence >= floor
        links = judged_table.columns(pairs.take(kept), confidence[kept])
        margin = np.minimum(links["source_lead"].to_numpy(), links["target_lead"].to_numpy())
        links = links.append_column("margin", pa.array(margin))
        recovery = self._recovery(row_pairs(links))
        seeds = 1.0 if recovery.seeds is None else recovery.seeds
        taken_off = recovery.pairs >= self._how.takeoff_recovery and seeds >= self._how.takeoff_seeds
        found = None if self._stranded else estimates(confidence, pairs.votes, by_round[chosen], kept)
        return Answer(links, recovery, taken_off, _as_report(found))

    def _recovery(self, links: np.ndarray) -> Recovery:
        """What is found again when only one half of the links, and no seed, are anchors."""
        if len(links) < RECOVERY_MIN:
            return Recovery(0.0, None)
        key = (self._link.random_seed, 0)
        views = RoundViews(self._bags(links, 2, 0.5, key), self._comparison(0), 0.5)
        found = self._candidates(self._without_seeds(links), views)
        found = found.filter(pc.field("role") == schemas.CANDIDATE)
        pairs, votes = row_pairs(found), found["votes"].to_numpy()
        again = int(votes[propose_stage.contains(links, pairs)].sum()) / len(links)
        seeds = self._seeds.seed_rows
        if not len(seeds):
            return Recovery(again, None)
        return Recovery(again, int(votes[propose_stage.contains(seeds, pairs)].sum()) / len(seeds))

    def _round(self, number: int) -> Iteration:
        begun = time.monotonic()
        before = len(self.anchors)
        views = self._views(number)
        found = self._candidates(self.anchors, views)
        pairs = self._pairs(found, schemas.CANDIDATE, views)
        decoys = None
        if number == 1:
            judged = Judged(pairs, judging.votes_alone(pairs))
            promoted = pairs.take(self._first(pairs, len(views.views)))
        else:
            lonely = [self._pairs(found, role, views) for role in (schemas.NO_TARGET, schemas.NO_SOURCE)]
            decoys = Decoys(lonely[0], lonely[1], len(self.anchors.rows))
            judged = Judged(pairs, judging.confidences(pairs, decoys, self._free_rows, self._how.evidence))
            promoted = self._promoted([*self._window, judged])
        rows = np.stack([promoted.source, promoted.target], axis=1)
        self._commit(number, judged_table.rows_of(judged, decoys, rows))
        if number == 1:
            self._audit()
        return Iteration(
            round=number,
            views=len(views.views),
            view_size=len(views.views[0].anchors) + len(self._seeds.seed_source),
            anchors_before=before,
            pairs_proposed=len(pairs),
            threshold=self._how.promote_floor,
            anchors=len(self.anchors),
            recovery=_share(promoted),
            seconds=round(time.monotonic() - begun, 3),
        )

    def _first(self, pairs: Pairs, maps: int) -> np.ndarray:
        if self._how.start == "unpaired" and judging.agreement(pairs, maps) < self._how.agreement_min:
            return np.empty(0, np.int64)
        return judging.first_anchors(pairs, maps, self._how.start_share, FIRST_ANCHORS_MIN)

    def _promoted(self, window: list[Judged]) -> Pairs:
        pairs, by_round = judging.together(window[-self._how.window :])
        confidence = by_round.mean(axis=1)
        most = int(self._how.growth * len(self.anchors)) + 10
        return pairs.take(judging.promoted(pairs, confidence, self._how.promote_floor, most))

    @property
    def _free_rows(self) -> tuple[int, int]:
        """Rows of either cloud that are no seed's."""
        taken = len(self._seeds.seed_rows)
        return self._clouds[0].rows - taken, self._clouds[1].rows - taken

    def _views(self, number: int) -> RoundViews:
        if number == 1:
            none = np.empty(0, np.int64)
            views = [View(i, none, 1) for i in range(self._maps)]
            kind = {"seeds": "soft", "unpaired": "unpaired", "plain": self._how.view_kind}[self._how.start]
            return RoundViews(views, replace(self._comparison(1), kind=kind), None)
        share, key = self._how.bag_share, (self._link.random_seed, number)
        views = self._bags(self.anchors.rows, self._how.views, share, key)
        return RoundViews(views, self._comparison(number), share)

    def _bags(self, rows: np.ndarray, views: int, share: float, key: tuple[int, int]) -> list[View]:
        held = row_bags(self._clouds[0].rows, views, share, key)[rows[:, 0]]
        return [View(i, np.flatnonzero(held[:, i]), 1) for i in range(views)]

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
        return found.sort_by([(c, "ascending") for c in propose_stage.CANDIDATE_KEYS])

    def _pairs(self, found: pa.Table, role: str, views: RoundViews) -> Pairs:
        found = found.filter(pc.field("role") == role)
        source, target = (found[c].to_numpy() for c in schemas.ROWS)
        votes = found["votes"].to_numpy()
        count = len(views.views)
        chances = count if views.bag_share is None else count - held_by(count, views.bag_share)
        sums = np.stack([found[f"{name}_nano"].to_numpy() for name in FEATURES], axis=1)
        pairs = Pairs(source, target, votes, np.full(len(votes), chances), sums / (NANO * votes[:, None]))
        seeds = self._seeds.seed_rows
        return pairs.take(~np.isin(source, seeds[:, 0]) & ~np.isin(target, seeds[:, 1]))

    def _commit(self, number: int, rows: pa.Table) -> None:
        rows = rows.append_column("round", pa.array(np.full(len(rows), number, np.int32)))
        self._append("judged", rows, schemas.JUDGED_PAIRS)
        self._learn(rows, number)

    def _audit(self) -> None:
        """Drop the seeds that the first anchors contradict."""
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
        if tables.is_delta(self._spark, f"{self._out}/seed_audit"):
            self._drop_seeds(tables.read(self._spark, f"{self._out}/seed_audit").toArrow().sort_by("seed"))
        last = len(self.history)
        first = max(last - self._how.window + 1, 1)
        table = tables.read(self._spark, f"{self._out}/judged").where(f"round >= {first}").toArrow()
        for number in range(first, last + 1):
            mine = table.filter(pc.field("round") == number)
            self._learn(mine.sort_by([(c, "ascending") for c in schemas.ROWS]), number)

    def _learn(self, rows: pa.Table, number: int) -> None:
        """Take a round's verdicts into the window, and its promoted pairs as anchors."""
        judged, anchors = judged_table.read(rows)
        # What the soft maps of the first round say is no probability: the second begins anew.
        before = self._window if number > SECOND else []
        self._window = [*before, judged][-self._how.window :]
        self._take(anchors)

    @property
    def _maps(self) -> int:
        how = self._how
        return {"seeds": how.start_maps, "unpaired": how.unpaired_maps, "plain": 1}[how.start]

    def _outlook(self) -> str:
        what = f"{self._how.views} views" if self.history else f"{self._maps} soft maps"
        return f"{what} of {len(self.anchors)} anchors"


def _as_report(found: Estimates | None) -> dict[str, float | list[float] | None]:
    if found is None:
        return {}
    values = {"precision": found.precision, "recall": found.recall, "shared": found.shared}
    report: dict[str, float | list[float] | None] = {name: e.value for name, e in values.items()}
    return report | {f"{name}_interval": [e.low, e.high] for name, e in values.items()}


def _share(chosen: Pairs) -> float | None:
    chances = int(chosen.opportunities.sum())
    return int(chosen.votes.sum()) / chances if chances else None
