"""A judging round of preset consensus: linear in its views, and what a view costs beside two exact faiss passes.

make bench BENCH_ARGS="-k round"
"""

from __future__ import annotations

import time

import faiss
import numpy as np
import pytest

from bench.evidence import keep
from clouds import two_warps
from in_process_consensus import InProcess
from veclink.settings import load_settings

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]

POINTS, VIEWS, ANCHORS, DIMS = (5_000, 10_000, 20_000), (2, 4, 8), 1_000, (384, 768)


def floor_seconds(n: int, width: int, k: int) -> float:
    """Two exact passes of n points over n, in as many dimensions as a view has."""
    a, b = np.random.default_rng(0).standard_normal((2, n, width), dtype=np.float32)
    faiss.omp_set_num_threads(1)
    begun = time.perf_counter()
    for queries, base in ((a, b), (b, a)):
        faiss.knn(queries, base, k, metric=faiss.METRIC_INNER_PRODUCT)
    return time.perf_counter() - begun


def round_seconds(clouds, views: int) -> float:
    """One round from ANCHORS right pairs and 20 seeds, in one process and one thread."""
    right = np.repeat(np.arange(ANCHORS)[:, None], 2, axis=1)
    loop = InProcess(*clouds, right[:20], load_settings(overrides=[f"consensus.views={views}"]))
    loop._take(right[20:])
    begun = time.perf_counter()
    loop._judging_round(1)
    return time.perf_counter() - begun


@pytest.mark.parametrize("n", POINTS)
def test_cost_of_a_round(n, capsys):
    clouds = two_warps(n, DIMS, 0.05, np.random.default_rng(0))
    settings = load_settings()
    floor = floor_seconds(n, settings.consensus.width, settings.link.csls_k)
    found = {views: round_seconds(clouds, views) for views in VIEWS}
    per_view, once = np.polyfit(list(found), list(found.values()), 1)
    figures = {"n": n, "floor": floor, "rounds": found, "per_view": per_view, "once": once, "ratio": per_view / floor}
    keep(f"round_{n}", figures)
    seconds = ", ".join(f"{views} views {s:.1f} s" for views, s in found.items())
    with capsys.disabled():
        print(
            f"\nround {n:,} x {n:,}: {seconds}; a view {per_view:.2f} s, once {once:.2f} s; "
            f"two exact passes {floor:.2f} s, ratio {per_view / floor:.2f}"
        )
    assert per_view > 0
