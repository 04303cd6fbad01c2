"""Exact search with faiss on the CPU."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def nearest(
    queries: NDArray[np.float32], base: NDArray[np.float32], k: int, threads: int = 1
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The k base rows of largest inner product of every query, best first (faiss.knn, brute force)."""
    import faiss

    faiss.omp_set_num_threads(threads)
    return faiss.knn(queries, base, k, metric=faiss.METRIC_INNER_PRODUCT)
