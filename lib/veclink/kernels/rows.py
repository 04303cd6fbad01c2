"""Checking raw vectors and bringing them to unit length.

Rows may be ragged; nothing here assumes that they are alike. Norms are taken in float64 after scaling each row by its
largest magnitude, so that neither 1e20 (whose square overflows float32) nor 1e-23 (whose square is 0) loses its
direction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FLOAT32_MAX = float(np.finfo(np.float32).max)

# Why a row is refused. The first that applies, in this order, is the one reported.
NULL_VECTOR = "null_vector"
EMPTY_VECTOR = "empty_vector"
WRONG_LENGTH = "wrong_length"
NULL_ELEMENT = "null_element"
NAN = "nan"
INFINITE = "infinite"
OUT_OF_RANGE = "out_of_range"
ZERO = "zero"
VECTOR_REASONS = (NULL_VECTOR, EMPTY_VECTOR, WRONG_LENGTH, NULL_ELEMENT, NAN, INFINITE, OUT_OF_RANGE, ZERO)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Ragged:
    """Rows of any length, one after the other, as `arrow_cols.ragged` returns them.

    values: float64, null elements as NaN. lengths: (n,) values of each row, 0 for a null row. valid: (n,) False for a
    null row. nulls: (n,) null elements of each row.
    """

    values: Floats
    lengths: Ints
    valid: Bools
    nulls: Ints


@dataclass(frozen=True)
class Checked:
    """What became of n rows.

    reasons: n entries, None for a good row, else one of VECTOR_REASONS. details: n entries, None for a good row.
    norms: (n,) float64 L2 norm of the row as it came, NaN for a bad row. unit: (good rows, dim) float32, in order.
    """

    reasons: list[str | None]
    details: list[str | None]
    norms: Floats
    unit: NDArray[np.float32]

    @property
    def good(self) -> Bools:
        """(n,) True for the rows that are in `unit`."""
        return np.fromiter((r is None for r in self.reasons), np.bool_, len(self.reasons))


def check(rows: Ragged, dim: int) -> Checked:
    """Judge every row against the expected dimension, and normalise the good ones.

    Raises nothing for bad data: a bad row gets a reason and a detail.
    """
    n = len(rows.lengths)
    code = np.full(n, -1)
    whole = rows.valid & (rows.lengths == dim) & (dim > 0)
    matrix = rows.values[np.repeat(whole, rows.lengths)].reshape(int(whole.sum()), dim)
    largest = np.full(n, np.nan)
    largest[whole] = np.abs(matrix).max(axis=1, initial=0.0)
    tests = {
        NULL_VECTOR: ~rows.valid,
        EMPTY_VECTOR: rows.lengths == 0,
        WRONG_LENGTH: ~whole,
        NULL_ELEMENT: rows.nulls > 0,
        NAN: np.isnan(largest),
        INFINITE: np.isinf(largest),
        OUT_OF_RANGE: largest > FLOAT32_MAX,
        ZERO: largest == 0,
    }
    for number, bad in enumerate(tests.values()):
        code[(code < 0) & bad] = number
    good = code < 0
    norms = np.full(n, np.nan)
    norms[good], unit = normalise(matrix[good[whole]])
    starts = np.cumsum(rows.lengths) - rows.lengths
    reasons: list[str | None] = [None] * n
    details: list[str | None] = [None] * n
    for i in np.flatnonzero(~good):
        reasons[i] = VECTOR_REASONS[code[i]]
        details[i] = _detail(reasons[i], rows.values[starts[i] : starts[i] + rows.lengths[i]], int(rows.nulls[i]), dim)
    return Checked(reasons, details, norms, unit)


def normalise(matrix: NDArray[np.floating]) -> tuple[Floats, NDArray[np.float32]]:
    """L2 norms (n,) in float64 and unit rows (n, dim) in float32 of a matrix whose rows are finite and not zero.

    The result of a row does not depend on the rows around it, so equal rows give equal bytes.
    """
    wide = np.ascontiguousarray(matrix, dtype=np.float64)
    largest = np.abs(wide).max(axis=1, initial=0.0)
    scaled = wide / largest[:, None]
    length = np.sqrt(np.square(scaled).sum(axis=1))
    # Adding 0 turns -0 into 0: both are the same direction and must hash alike.
    unit = (scaled / length[:, None]).astype(np.float32) + np.float32(0)
    return largest * length, unit


def digests(unit: NDArray[np.float32]) -> list[bytes]:
    """A 16-byte BLAKE2b digest of each row's bytes: equal digests mean the same vector."""
    little = np.ascontiguousarray(unit, dtype="<f4")
    return [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in little]


def _detail(reason: str | None, row: Floats, nulls: int, dim: int) -> str:
    texts: dict[str | None, Callable[[], str]] = {
        NULL_VECTOR: lambda: "vector is null",
        EMPTY_VECTOR: lambda: f"length 0, expected {dim}",
        WRONG_LENGTH: lambda: f"length {len(row)}, expected {dim}",
        NULL_ELEMENT: lambda: f"null elements: {nulls} of {dim}",
        NAN: lambda: f"NaN elements: {int(np.isnan(row).sum())} of {dim}",
        INFINITE: lambda: f"infinite elements: {int(np.isinf(row).sum())} of {dim}",
        OUT_OF_RANGE: lambda: f"largest magnitude {np.abs(row).max():.3g}, float32 ends at {FLOAT32_MAX:.3g}",
        ZERO: lambda: f"all {dim} elements are 0",
    }
    return texts[reason]()
