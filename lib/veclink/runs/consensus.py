"""The loop of preset `consensus`, round by round.

    seeds --soft maps of the whole clouds--> first anchors
    anchors --balanced bags, affine maps--> candidates and decoys --evidence model--> confidences --> next anchors

Pairs are judged only by views that do not hold them, against a model of what objects without a partner find
(kernels/bags.py, kernels/evidence_model.py). The answer averages the last rounds, one per fold, so that every pair is
judged in several rounds that did not hide it. Every round commits twice to Delta: its verdicts, then its row in
`iterations`; a run that was killed goes on behind the last round that has both.
"""

from __future__ import annotations

import time

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
from veclink.runs.loop import Answer, Iteration, Loop, Recovery, row_pairs
from veclink.runs.seeds import MIN_SEEDS
from veclink.stages import propose as propose_stage
from veclink.stages.propose import FEATURES, NANO, Anchors, RoundViews

NOTHING_HIDDEN = Hidden(np.empty(0, np.int64), np.empty(0, np.int64))
FIRST_ANCHORS_MIN = 30


class Consensus(Loop):
    """The loop of this package: it also keeps the anchors' confidence and the last rounds' verdicts."""

    def _begin(self) -> None:
        self._how = self._settings.consensus
        self._window: list[Judged] = []
        self._confidence = np.empty(0)

    @property
    def _rounds_max(self) -> int:
        return self._how.rounds_max

    @property
    def _rounds_min(self) -> int:
        return self._how.folds + 1  # every fold has had its turn since the first round

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
        pairs, confidence = judging.average(self._window)
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
        return Answer(links, recovery, taken_off, {} if self._stranded else _estimates(confidence, kept))

    def _recovery(self, links: np.ndarray) -> Recovery:
        """What is found again when only one half of the links, and no seed, are anchors."""
        if len(links) < 2 * MIN_SEEDS:
            return Recovery(0.0, None)
        views = RoundViews(two_halves(len(links), self._link.random_seed), self._comparison(0), _no_rows())
        found = self._candidates(self._without_seeds(links), views)
        pairs, votes = row_pairs(found), found["votes"].to_numpy()
        again = int(votes[propose_stage.contains(links, pairs)].sum()) / len(links)
        seeds = self._seeds.seed_rows
        if not len(seeds):
            return Recovery(again, None)
        return Recovery(again, int(votes[propose_stage.contains(seeds, pairs)].sum()) / (2 * len(seeds)))

    def _round(self, number: int) -> Iteration:
        begun = time.monotonic()
        before = len(self.anchors)
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
        return Iteration(
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

    def _resume(self) -> None:
        first = len(self.history) - self._how.folds + 1
        table = tables.read(self._spark, f"{self._out}/judged").where(f"round >= {first}").toArrow()
        for number in range(max(first, 1), len(self.history) + 1):
            mine = table.filter(pa.array(table["round"].to_numpy() == number))
            self._learn(mine.sort_by([(c, "ascending") for c in schemas.ROWS]))

    def _learn(self, rows: pa.Table) -> None:
        """Take a round's verdicts into the window, and its promoted pairs as anchors."""
        judged, anchors, confidence = judged_table.read(rows)
        self._window = [*self._window, judged][-self._how.folds :]
        self._take(anchors)
        self._confidence = confidence

    @property
    def _maps(self) -> int:
        return self._how.start_maps if self._how.start == "seeds" else self._how.unpaired_maps

    def _outlook(self) -> str:
        what = f"{self._how.views} views" if self.history else f"{self._maps} soft maps"
        return f"{what} of {len(self.anchors)} anchors"


def _estimates(confidence: np.ndarray, kept: np.ndarray) -> dict[str, float | None]:
    """Precision and recall of the kept pairs, and how many objects are shared, as the confidences have them."""
    shared = float(confidence.sum())
    return {
        "precision": float(confidence[kept].mean()) if kept.any() else None,
        "recall": float(confidence[kept].sum()) / shared if shared else None,
        "shared": shared,
    }


def _no_rows() -> tuple[np.ndarray, np.ndarray]:
    return np.empty(0, np.int64), np.empty(0, np.int64)


def _share(chosen: Pairs) -> float | None:
    chances = int(chosen.opportunities.sum())
    return int(chosen.votes.sum()) / chances if chances else None
