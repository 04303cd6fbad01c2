"""One view against its floor: two exact faiss k-nearest passes over the same arrays, in the same process.

make bench BENCH_ARGS="-k view"
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import faiss
import numpy as np
import psutil
import pytest

from bench.evidence import keep
from clouds import two_warps
from veclink.backends import faiss_cpu
from veclink.kernels.hashing import hash_cloud
from veclink.kernels.propose import propose, working_bytes

pytestmark = pytest.mark.bench

DIMS, ANCHORS, K = (384, 768), 400, 50


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """Highest resident memory above that at entry, in bytes, as the one item of the list."""
    process, peak, stop = psutil.Process(), [0], threading.Event()
    before = process.memory_info().rss

    def watch() -> None:
        while not stop.wait(0.005):
            peak[0] = max(peak[0], process.memory_info().rss - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        stop.set()
        watcher.join()


def figures(n: int, threads: int, repeats: int) -> dict[str, float]:
    clouds = two_warps(n, DIMS, 0.05, np.random.default_rng(0))
    rows = np.random.default_rng(1).permutation(n)[:ANCHORS]
    anchors = clouds[0][rows], clouds[1][rows]

    def nearest(queries, base, k):
        return faiss_cpu.nearest(queries, base, k, threads)

    # Memory first: later calls find the pages that earlier ones have freed, and seem to need none.
    with peak_memory() as peak:
        propose(clouds, anchors, K, "cloud", nearest)
    floors, views = [], []
    hashes = [hash_cloud(c, a, "cloud") for c, a in zip(clouds, anchors, strict=True)]
    faiss.omp_set_num_threads(threads)
    for _ in range(repeats):
        begun = time.perf_counter()
        for q, b in (hashes, hashes[::-1]):
            faiss.knn(q, b, K, metric=faiss.METRIC_INNER_PRODUCT)
        middle = time.perf_counter()
        found = propose(clouds, anchors, K, "cloud", nearest)
        floors.append(middle - begun)
        views.append(time.perf_counter() - middle)
    ratio = float(np.median(np.array(views) / np.array(floors)))
    return {
        "n": n,
        "threads": threads,
        "floor_seconds": float(np.median(floors)),
        "view_seconds": float(np.median(views)),
        "ratio": ratio,
        "peak_mib": peak[0] / 2**20,
        "predicted_mib": working_bytes(n, n, ANCHORS, K) / 2**20,
        "n_x_m_mib": 4 * n * n / 2**20,
        "uncertified_rows": found.uncertified,
    }


@pytest.mark.parametrize(("n", "threads", "repeats"), [(10_000, 1, 3), (20_000, 1, 3)])
def test_view_against_two_exact_passes(n, threads, repeats, capsys):
    found = figures(n, threads, repeats)
    with capsys.disabled():
        print(
            f"\nview {n:,} x {n:,} x {ANCHORS}, {threads} threads: floor {found['floor_seconds']:.2f} s, view "
            f"{found['view_seconds']:.2f} s, ratio {found['ratio']:.2f}; peak {found['peak_mib']:.0f} MiB (predicted "
            f"{found['predicted_mib']:.0f}, n x m would be {found['n_x_m_mib']:.0f}); "
            f"{found['uncertified_rows']} rows not certified"
        )
    keep(f"view_{n}_{threads}", found)
    assert found["view_seconds"] > 0
