"""Are the seeds right? Each is asked under a map that was fitted without any of them.

Once the first anchors are known (what soft maps of the whole clouds agree on), a map fitted on them alone says where a
seed's partner should lie. A right partner is among the nearest points, a wrong one lies anywhere: one bad seed among
twenty is named, also where the distances among the seeds would be too few or too rough to tell (leave-one-out).

Letters: s seeds, n source and m target points.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veclink.kernels.affine import cca_maps, unit_rows

Matrix = NDArray[np.float32]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Pair = tuple[Matrix, Matrix]

BLOCK_ROWS = 8_192
# A partner that coincides with the point compared is not behind it.
ROUNDING = 1e-6
# Ranks this near to the first are right in any cloud, however small.
NEAREST = 10
# Where more of the seeds seem wrong, the map is no judge of them: the run has not found its start.
MOST_WRONG = 0.5


def partner_ranks(clouds: Pair, anchors: Pair, seeds: Pair, ridge: float, width: int) -> Floats:
    """(s, 2): share of the targets nearer to a seed's source than its partner, and of the sources nearer to its target.

    clouds: (n, d_s), (m, d_t) unit rows. anchors: pairs by position that hold no seed; ridge and width as in
    `affine.cca_maps`. seeds: (s, d_s), (s, d_t). Memory: 4 * 8192 (s + width) bytes.
    """
    means = [c.mean(axis=0, dtype=np.float64).astype(np.float32) for c in clouds]
    maps = cca_maps(unit_rows(anchors[0] - means[0]), unit_rows(anchors[1] - means[1]), ridge, width)

    def mapped(points: Matrix, side: int) -> Matrix:
        return unit_rows((points - means[side]) @ maps[side])

    own = [mapped(seeds[side], side) for side in (0, 1)]
    partner = np.einsum("ij,ij->i", own[0], own[1])
    ranks = np.empty((len(partner), 2))
    for side in (0, 1):
        other = clouds[1 - side]
        nearer = np.zeros(len(partner), np.int64)
        for start in range(0, len(other), BLOCK_ROWS):
            block = mapped(other[start : start + BLOCK_ROWS], 1 - side)
            nearer += (own[side] @ block.T > partner[:, None] + ROUNDING).sum(axis=1)
        ranks[:, side] = nearer / len(other)
    return ranks


def wrong_seeds(ranks: Floats, points: tuple[int, int], limit: float) -> Bools:
    """(s,) seeds whose partner is not among the nearest; none where too many of them are.

    ranks: (s, 2) of `partner_ranks`. points: n and m. limit: geometric mean of the two shares above which a seed is
    wrong, 0 to 1. Partners drawn at random lie below .03 once in a hundred times or less, right ones of unlike
    encoders above .01 now and then.
    """
    sides = [(ranks[:, i] * n + 1) / n for i, n in enumerate(points[::-1])]
    least = NEAREST / np.sqrt(points[0] * points[1])
    wrong: Bools = np.sqrt(sides[0] * sides[1]) > max(limit, least)
    return wrong if wrong.mean() <= MOST_WRONG else np.zeros(len(ranks), bool)
