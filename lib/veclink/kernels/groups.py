"""Groups of points that are one object, from links among any number of clouds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def groups(cloud: Rows, first: Rows, second: Rows, confidence: Floats) -> tuple[Rows, Bools]:
    """Join points by links, the surest first; a link that would bring two points of one cloud together is left out.

    cloud: (m,) number of each point's cloud. first, second: (n,) points that a link joins. confidence: (n,); equal ones
    go in the order given. Returns (m,) the group of each point, numbered in the order of their first points, -1 for a
    point without a link, and (n,) the links left out.

    A union-find over Python integers, a few microseconds a link.
    """
    parent = list(range(len(cloud)))
    members = [1 << c for c in cloud.tolist()]  # the clouds of a group, a bit each
    left_out = np.zeros(len(first), dtype=np.bool_)

    def root(point: int) -> int:
        while parent[point] != point:
            parent[point] = parent[parent[point]]
            point = parent[point]
        return point

    for link in np.argsort(-confidence, kind="stable").tolist():
        a, b = root(int(first[link])), root(int(second[link]))
        if a == b:
            continue
        if members[a] & members[b]:
            left_out[link] = True
            continue
        a, b = min(a, b), max(a, b)
        parent[b], members[a] = a, members[a] | members[b]
    roots = np.array([root(point) for point in range(len(cloud))], dtype=np.int64)
    sizes = np.bincount(roots, minlength=len(cloud))
    _, numbers = np.unique(roots[sizes[roots] > 1], return_inverse=True)
    found = np.full(len(cloud), -1, dtype=np.int64)
    found[sizes[roots] > 1] = numbers
    return found, left_out
