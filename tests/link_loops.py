"""What tests of loops share: finding them point by point, as the words read, and a world with known right links."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from veclink.kernels.cycles import Loops

# A point is (cloud, row); a link two points, the lower cloud first.
Point = tuple[int, int]
Link = tuple[Point, Point]


def find_loops(links: list[Link]) -> Loops:
    """All loops of some links, which are one to one in every pair of clouds. The number of a link is its place."""
    pairs = sorted({(a[0], b[0]) for a, b in links})
    partner, number = {}, {}
    for i, (a, b) in enumerate(links):
        partner[a, b[0]], partner[b, a[0]] = b, a
        number[a, b] = number[b, a] = i
    closed, broken, opened, lacking = set(), set(), set(), {}
    for i, ends in enumerate(links):
        for x, y in (ends, ends[::-1]):
            for c in {cloud for pair in pairs for cloud in pair} - {x[0], y[0]}:
                third = tuple(sorted((x[0], c)))
                z = partner.get((y, c))
                if third not in pairs or z is None:
                    continue
                back, here = partner.get((x, c)), number[y, z]
                if back == z:
                    closed.add(tuple(sorted((i, here, number[x, z]))))
                elif back is not None:
                    broken.add((min(here, number[x, back]), i, max(here, number[x, back])))
                elif partner.get((z, x[0])) is None:
                    opened.add(tuple(sorted((i, here))))
                    lacking[tuple(sorted((i, here)))] = pairs.index(third)
    pair = np.array([pairs.index((a[0], b[0])) for a, b in links], dtype=np.int64)
    sides = [np.array(sorted(s), dtype=np.int64).reshape(-1, w) for s, w in ((closed, 3), (broken, 3), (opened, 2))]
    return Loops(pair, *sides, np.array([lacking[o] for o in sorted(opened)], dtype=np.int64))


@dataclass(frozen=True)
class World:
    """Links with known confidence: right[i] is true with probability confidence[i]."""

    links: list[Link]
    confidence: np.ndarray
    right: np.ndarray


def world(objects: int, together: float, draw: int = 0, clouds: int = 3) -> World:
    """Objects that are in some of the clouds, linked by imperfect runs.

    Neighbours (2i, 2i + 1) are taken for each other. Hard objects are missed and mistaken more often. together: how far
    a link's confidence goes with that, 0 to 1; right ones are surer than wrong ones in any case, such that every
    confidence is true.
    """
    rng = np.random.default_rng(draw)
    inside = rng.random((objects, clouds)) < 0.65
    hard = np.repeat(rng.random(objects // 2), 2)
    links, right, owner = [], [], []
    for a, b in itertools.combinations(range(clouds), 2):
        met = inside[:, a] & inside[:, b] & (rng.random(objects) > 0.3 * hard)
        taken = [inside[:, c] & ~met for c in (a, b)]
        neighbour = np.arange(objects) ^ 1
        mistaken = taken[0] & taken[1][neighbour] & (rng.random(objects) < 0.6 * hard)
        for o in np.flatnonzero(met | mistaken).tolist():
            links.append(((a, o), (b, o if met[o] else int(neighbour[o]))))
            right.append(bool(met[o]))
            owner.append(o)
    good, trouble = np.array(right), hard[owner] * together + rng.random(len(owner)) * (1 - together)
    spread = 5.0  # of beta distributions whose mean is the share of right links
    shape = spread * good.mean(), spread * (1 - good.mean())
    confidence = np.empty(len(good))
    for side, values in ((good, (shape[0] + 1, shape[1])), (~good, (shape[0], shape[1] + 1))):
        drawn = np.sort(rng.beta(*values, side.sum()))[::-1]
        confidence[np.flatnonzero(side)[np.argsort(trouble[side])]] = drawn
    return World(links, np.clip(confidence, 1e-6, 1 - 1e-6), good)
