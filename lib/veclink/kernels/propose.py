"""One view: hash both clouds against its anchors and propose the mutual best partners."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veclink.kernels.csls import Matches, Nearest, mutual_matches
from veclink.kernels.hashing import hash_cloud

Matrix = NDArray[np.float32]


def propose(
    clouds: tuple[Matrix, Matrix], anchors: tuple[Matrix, Matrix], k: int, sigma_from: str, nearest: Nearest
) -> Matches:
    """Proposals of one view.

    clouds: source (n, d_s) and target (m, d_t) unit rows. anchors: the view's anchors on each side, (s, d_s) and
    (s, d_t), paired by position. Memory beyond the inputs: hashes 4 s (n + m) bytes (twice while the bandwidth is
    taken), lists of k + 1: 12 (k + 1) (n + m) bytes, candidates about 50 (k + 1) (n + m) bytes. Nothing of n x m.
    """
    source, target = (hash_cloud(c, a, sigma_from) for c, a in zip(clouds, anchors, strict=True))
    return mutual_matches(source, target, k, nearest)


def working_bytes(n: int, m: int, s: int, k: int) -> int:
    """Memory of one view beyond its inputs: hashes (9 bytes an entry at the bandwidth), lists and candidates."""
    return (n + m) * (9 * s + 62 * (k + 1))
