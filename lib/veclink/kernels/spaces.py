"""One view's common space: where rows of the two clouds can be compared by their inner product.

kinds: `hash`  distances to the view's anchors (kernels/hashing.py)
       `ridge` ridge regression of the target on the source (kernels/affine.py)
       `cca`   canonical correlation with a ridge, both sides mapped (kernels/affine.py)
       `soft`  an orthogonal map found on the whole clouds, begun from the anchors (kernels/soft.py)
       `unpaired` the same, begun from the clouds' shapes alone (kernels/unpaired.py); it needs no anchors
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veclink.kernels.affine import cca_maps, ridge_map, unit_rows
from veclink.kernels.csls import Nearest
from veclink.kernels.hashing import hash_cloud
from veclink.kernels.soft import SoftOptions, map_of_pairs, pca, soft_refine
from veclink.kernels.unpaired import UnpairedOptions, start_map

Matrix = NDArray[np.float32]
Rows = NDArray[np.int64]

KINDS = ("hash", "ridge", "cca", "soft", "unpaired")
# Rows of a side that the soft map looks at; more make it slower and no better.
SOFT_ROWS = 20_000
SOFT_WIDTH = 256


@dataclass(frozen=True)
class Comparison:
    """How a view compares: its kind, source of the bandwidth (hash), ridge and width (cca), penalty (ridge).

    key: what random choices are keyed by (soft, unpaired): the random seed of the run first, the view last.
    """

    kind: str
    bandwidth: str = "cloud"
    ridge: float = 1.0
    width: int = 256
    penalty: float = 0.5
    key: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Maps:
    """Both sides' ways into a common space, x -> (x - mean) W scaled to length 1.

    means: (d_s,) and (d_t,). weights: (d_s, r) and (d_t, r); None: the identity.
    """

    means: tuple[Matrix, Matrix]
    weights: tuple[Matrix | None, Matrix | None]

    def apply(self, side: int, points: Matrix) -> Matrix:
        """(n, d) rows of a side (0: source, 1: target) as (n, r) unit rows."""
        mean, weights = self.means[side], self.weights[side]
        if weights is None:
            return unit_rows(points - mean)
        # (x - mean) W without a centred copy; the length of x - mean falls out when rows are scaled.
        mapped = points @ weights
        mapped -= mean @ weights
        return unit_rows(mapped)


def common_space(
    clouds: tuple[Matrix, Matrix], anchors: tuple[Matrix, Matrix], how: Comparison, nearest: Nearest
) -> tuple[Matrix, Matrix]:
    """Both clouds as unit rows of one space: (n, r) and (m, r).

    clouds: source (n, d_s) and target (m, d_t) unit rows. anchors: (s, d_s) and (s, d_t), paired by position.
    Memory beyond the inputs: 4 r (n + m) bytes, for `hash` twice that while the bandwidth is taken.
    """
    if how.kind == "hash":
        source, target = (hash_cloud(c, a, how.bandwidth) for c, a in zip(clouds, anchors, strict=True))
        return source, target
    maps = fit_maps(clouds, anchors, how, nearest)
    return maps.apply(0, clouds[0]), maps.apply(1, clouds[1])


def fit_maps(clouds: tuple[Matrix, Matrix], anchors: tuple[Matrix, Matrix], how: Comparison, nearest: Nearest) -> Maps:
    """The maps of a kind that has them (not `hash`). Arguments as for `common_space`; samples of the clouds will do."""
    if how.kind in ("soft", "unpaired"):
        return _soft(clouds, anchors, how, nearest)
    means = clouds[0].mean(axis=0, dtype=np.float64), clouds[1].mean(axis=0, dtype=np.float64)
    centre = means[0].astype(np.float32), means[1].astype(np.float32)
    source, target = (unit_rows(a - mean) for a, mean in zip(anchors, centre, strict=True))
    if how.kind == "ridge":
        return Maps(centre, (ridge_map(source, target, how.penalty), None))
    return Maps(centre, cca_maps(source, target, how.ridge, how.width))


def _soft(clouds: tuple[Matrix, Matrix], anchors: tuple[Matrix, Matrix], how: Comparison, nearest: Nearest) -> Maps:
    rng = np.random.default_rng(how.key)
    samples = [c if len(c) <= SOFT_ROWS else c[np.sort(rng.permutation(len(c))[:SOFT_ROWS])] for c in clouds]
    spaces = [pca(sample, SOFT_WIDTH) for sample in samples]
    # The anchors stand behind the rows of the samples: they need not lie in the clouds.
    known = [space.project(a) for space, a in zip(spaces, anchors, strict=True)]
    points = [np.concatenate([s.project(x), a]) for s, x, a in zip(spaces, samples, known, strict=True)]
    s = len(anchors[0])
    seeds = np.stack([np.arange(len(p) - s, len(p)) for p in points], axis=1)
    if how.kind == "soft":
        # All maps of a run begin alike: two that begin anywhere would both have to be lucky.
        begin = map_of_pairs(known[0], known[1], np.random.default_rng(how.key[:1]))
        options = SoftOptions(random_key=how.key)
    else:
        choice = UnpairedOptions(random_seed=how.key[0], run=how.key[-1])
        begin = start_map(points[0], points[1], seeds, nearest, choice)
        options = SoftOptions(random_key=how.key, cycles_max=1)
    found = soft_refine(points[0], points[1], begin, seeds, nearest, options)
    return Maps((spaces[0].mean, spaces[1].mean), (spaces[0].basis @ found.map, spaces[1].basis))
