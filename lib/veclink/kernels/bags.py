"""Which anchors each view of a round holds, and which rows a round hides to learn what chance finds.

A view judges only pairs that it does not hold (out of bag), and every anchor is out of the bag of equally many views.
A fold of the anchors is left out of a whole round: of half of them the target row is hidden, of the other half the
source row. Their partners are then known to be without a partner, and whatever they are matched with is wrong: a
*decoy*. Decoys show what an object that is on one side only looks like (target-decoy search: Elias and Gygi 2007).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Hidden:
    """Anchors of a round's fold: positions among the anchors.

    no_target: their target row is hidden, the source row is a decoy. no_source: the other way round.
    """

    no_target: Rows
    no_source: Rows

    @property
    def all(self) -> Rows:
        """Positions of both."""
        return np.concatenate([self.no_target, self.no_source])


def hidden_fold(source_rows: Rows, folds: int, random_seed: int, round_number: int) -> Hidden:
    """The anchors left out in a round: the fold of a source row is drawn once, and folds take turns.

    An anchor is therefore judged in folds - 1 of any `folds` rounds in a row.
    """
    draws = row_draws(source_rows, random_seed)
    inside = (draws % np.uint64(folds)).astype(np.int64) == round_number % folds
    # Which half changes every time a fold's turn comes round.
    coin = ((draws // np.uint64(folds)).astype(np.int64) + round_number // folds) % 2 == 0
    return Hidden(np.flatnonzero(inside & coin), np.flatnonzero(inside & ~coin))


def row_draws(rows: Rows, random_seed: int) -> NDArray[np.uint64]:
    """A uniform 63-bit number for every row number, the same whenever it is drawn (SplitMix64, Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        z = rows.astype(np.uint64) + np.uint64(random_seed + 1) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (z ^ (z >> np.uint64(31))) >> np.uint64(1)


def balanced_bags(anchors: int, views: int, share: float, key: tuple[int, int]) -> Bools:
    """(anchors, views): which view holds which anchor; every anchor is in the same number of views.

    share: of the views, 0 to 1; at least one view holds an anchor, and with two views or more one does not.
    key: (random seed of the run, round number).
    """
    held = min(max(1, round(share * views)), max(1, views - 1))
    rank = np.random.default_rng([*key, anchors]).random((anchors, views)).argsort(axis=1)
    return rank < held
