"""Array engines behind one contract: a module with `nearest(queries, base, k, threads)`.

`nearest` returns, for every query, the k base rows of largest inner product: similarities (q, k) float32, best first,
and row numbers (q, k) int64. It is exact. Libraries are imported inside functions, on the executors only.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from veclink.errors import InputError

Matrix = NDArray[np.float32]
Rows = NDArray[np.int64]

# name -> (module of the engine, library it needs)
BACKENDS = {
    "numpy": ("veclink.backends.numpy_tiles", "numpy"),
    "faiss": ("veclink.backends.faiss_cpu", "faiss"),
}


@dataclass(frozen=True)
class Engine:
    """How a task computes: engine name, its threads, csls list length, source of the bandwidth.

    tasks: Spark tasks the views of a round are dealt to, None: one per view. It never changes the result.
    """

    backend: str
    threads: int
    k: int
    bandwidth: str
    tasks: int | None = None

    def nearest(self, queries: Matrix, base: Matrix, k: int) -> tuple[Matrix, Rows]:
        """Exact search, as the contract of the module says."""
        return load(self.backend).nearest(queries, base, k, self.threads)  # type: ignore[no-any-return]


def choose(name: str) -> str:
    """The engine a setting asks for; `auto` takes faiss where it is installed, else numpy.

    Raises InputError if the engine that was asked for by name is not installed: there is no silent fall-back.
    """
    if name == "auto":
        return "faiss" if importlib.util.find_spec("faiss") else "numpy"
    library = BACKENDS[name][1]
    if not importlib.util.find_spec(library):
        raise InputError(
            f"backend {name} needs the library {library}, which is not installed", do="Use link.backend=auto"
        )
    return name


def load(name: str) -> ModuleType:
    """The module of an engine."""
    return importlib.import_module(BACKENDS[name][0])
