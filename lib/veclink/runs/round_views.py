"""The views of a consensus round: made from its anchors, and what they have found read as evidence."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veclink import schemas
from veclink.candidates import FEATURES, NANO
from veclink.kernels.bags import held_by, row_bags
from veclink.kernels.judging import Decoys, Evidence, Pairs
from veclink.kernels.spaces import Comparison
from veclink.kernels.views import RoundViews, View
from veclink.settings import Settings

# Views of the take-off test and the share of the links that each holds: every link and seed is judged by one of them.
RECOVERY_VIEWS, RECOVERY_SHARE = 5, 0.8


@dataclass(frozen=True)
class ViewMaker:
    """Makes the views of rounds. rows: of the source cloud. Pairs are (p, 2) row numbers, anchors that are no seeds."""

    settings: Settings
    rows: int

    @property
    def maps(self) -> int:
        """Soft maps of a start."""
        how = self.settings.consensus
        return {"seeds": how.start_maps, "unpaired": how.unpaired_maps, "plain": 1}[how.start]

    def start(self, pairs: np.ndarray, number: int) -> RoundViews:
        """Maps that hold all anchors, and judge all rows."""
        how = self.settings.consensus
        kind = {"seeds": "soft", "unpaired": "unpaired", "plain": how.view_kind}[how.start]
        views = [View(i, np.arange(len(pairs)), 1) for i in range(self.maps)]
        return RoundViews(views, replace(self._comparison(number), kind=kind), None)

    def judging(self, pairs: np.ndarray, number: int) -> RoundViews:
        """Bags of the anchors; each view judges the rows that it does not hold."""
        how = self.settings.consensus
        return self._bags(pairs, how.views, how.bag_share, number)

    def takeoff(self, pairs: np.ndarray) -> RoundViews:
        """Most of the links in each view, and no link in all."""
        return self._bags(pairs, RECOVERY_VIEWS, RECOVERY_SHARE, 0)

    def _bags(self, pairs: np.ndarray, views: int, share: float, number: int) -> RoundViews:
        how = self._comparison(number)
        held = row_bags(self.rows, views, share, how.key)[pairs[:, 0]]
        return RoundViews([View(i, np.flatnonzero(held[:, i]), 1) for i in range(views)], how, share)

    def _comparison(self, number: int) -> Comparison:
        how, link = self.settings.consensus, self.settings.link
        kind, key = how.view_kind, (link.random_seed, number)
        return Comparison(kind, link.bandwidth, ridge=how.ridge, width=how.width, penalty=how.penalty, key=key)


def pairs_of(found: pa.Table, role: str, views: RoundViews, seeds: np.ndarray) -> Pairs:
    """Rows of one role (schemas.CANDIDATES) as pairs; those at a point of a seed, (s, 2) rows, are left out."""
    found = found.filter(pc.field("role") == role)
    source, target = (found[c].to_numpy() for c in schemas.ROWS)
    votes = found["votes"].to_numpy()
    count = len(views.views)
    chances = count if views.bag_share is None else count - held_by(count, views.bag_share)
    sums = np.stack([found[f"{name}_nano"].to_numpy() for name in FEATURES], axis=1)
    pairs = Pairs(source, target, votes, np.full(len(votes), chances), sums / (NANO * votes[:, None]))
    return pairs.take(~np.isin(source, seeds[:, 0]) & ~np.isin(target, seeds[:, 1]))


def evidence_of(found: pa.Table, views: RoundViews, asked: np.ndarray, seeds: np.ndarray) -> Evidence:
    """A round's evidence. asked: (a, 2) anchors that were asked without their partner."""
    roles = (schemas.CANDIDATE, schemas.NO_TARGET, schemas.NO_SOURCE)
    pairs, no_target, no_source = (pairs_of(found, role, views, seeds) for role in roles)
    return Evidence(pairs, Decoys(no_target, no_source, asked))
