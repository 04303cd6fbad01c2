"""Checking and normalising rows, against a slow and obvious version of the same."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veclink.kernels import rows

FINITE = st.floats(-3e38, 3e38, allow_nan=False)
ANY = st.one_of(FINITE, st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e300, 1e-320, 1e-23, 1e20, None]))
DIM = 4
ROW = st.one_of(st.none(), st.lists(ANY, max_size=6), st.lists(ANY, min_size=DIM, max_size=DIM))


def ragged(data: list[list[float | None] | None]) -> rows.Ragged:
    """Rows as Python lists (None: null) in the form the kernel takes."""
    values = [math.nan if v is None else v for row in data for v in row or []]
    return rows.Ragged(
        np.array(values, np.float64),
        np.array([len(row or []) for row in data], np.int64),
        np.array([row is not None for row in data], np.bool_),
        np.array([sum(v is None for v in row or []) for row in data], np.int64),
    )


def reference(row: list[float | None] | None, dim: int) -> str | None:
    """The contract, one row at a time; a test is only asked after those before it said no."""
    tests = {
        "null_vector": lambda: row is None,
        "empty_vector": lambda: not row,
        "wrong_length": lambda: len(row) != dim,
        "null_element": lambda: None in row,
        "nan": lambda: any(math.isnan(v) for v in row),
        "infinite": lambda: any(math.isinf(v) for v in row),
        "out_of_range": lambda: any(abs(v) > float(np.finfo(np.float32).max) for v in row),
        "zero": lambda: all(v == 0 for v in row),
    }
    return next((reason for reason, bad in tests.items() if bad()), None)


def exact_unit(row: list[float]) -> list[float]:
    """Unit vector by exact rational arithmetic, as far as it goes."""
    parts = [Fraction(v) for v in row]
    largest = max(abs(p) for p in parts)
    scaled = [float(p / largest) for p in parts]
    length = math.sqrt(math.fsum(s * s for s in scaled))
    return [s / length for s in scaled]


@given(st.lists(ROW, max_size=8))
@settings(max_examples=200, deadline=None)
def test_same_verdicts_norms_and_units_as_the_reference(data: list[list[float | None] | None]) -> None:
    checked = rows.check(ragged(data), DIM)
    assert checked.reasons == [reference(row, DIM) for row in data]
    assert [d is None for d in checked.details] == [r is None for r in checked.reasons]
    good = [row for row, reason in zip(data, checked.reasons, strict=True) if reason is None]
    assert checked.unit.shape == (len(good), DIM)
    assert checked.unit.dtype == np.float32
    assert np.isnan(checked.norms).tolist() == [reason is not None for reason in checked.reasons]
    for unit, row in zip(checked.unit, good, strict=True):
        np.testing.assert_allclose(unit, exact_unit(row), rtol=1e-6, atol=1e-37)
    np.testing.assert_allclose(checked.norms[checked.good], [math.hypot(*row) for row in good], rtol=1e-12)


@pytest.mark.parametrize(
    ("values", "norm"),
    [
        pytest.param(np.full(768, 300, np.float16), 300 * math.sqrt(768), id="half precision overflow"),
        pytest.param(np.full(768, 1e-4, np.float16), float(np.float16(1e-4)) * math.sqrt(768), id="half underflow"),
        pytest.param(np.full(64, 1e20, np.float32), float(np.float32(1e20)) * 8, id="float32 1e20"),
        pytest.param(np.array([1e-23, 2e-23], np.float32), 5**0.5 * 1e-23, id="float32 1e-23"),
        pytest.param(np.array([1e-6, 0.0]), 1e-6, id="1e-6 and 0"),
        pytest.param(np.array([3e-310, 4e-310]), 5e-310, id="subnormal double"),
        pytest.param(np.array([-128, 127], np.int8), math.hypot(128, 127), id="bytes"),
        pytest.param(np.array([-5.0]), 5.0, id="one dimension"),
    ],
)
def test_extreme_but_good_vectors_reach_unit_length(values: np.ndarray, norm: float) -> None:
    checked = rows.check(ragged([values.astype(np.float64).tolist()]), len(values))
    assert checked.reasons == [None]
    assert checked.norms[0] == pytest.approx(norm, rel=1e-6)
    assert np.linalg.norm(checked.unit[0].astype(np.float64)) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("row", "reason", "detail"),
    [
        (None, "null_vector", "vector is null"),
        ([], "empty_vector", "length 0, expected 3"),
        ([1.0, 2.0], "wrong_length", "length 2, expected 3"),
        ([1.0, None, 2.0], "null_element", "null elements: 1 of 3"),
        ([1.0, math.nan, math.inf], "nan", "NaN elements: 1 of 3"),
        ([1.0, -math.inf, 1e300], "infinite", "infinite elements: 1 of 3"),
        ([1.0, 0.0, -1e300], "out_of_range", "largest magnitude 1e+300, float32 ends at 3.4e+38"),
        ([0.0, -0.0, 0.0], "zero", "all 3 elements are 0"),
    ],
)
def test_bad_vectors_say_what_is_wrong(row: list[float | None] | None, reason: str, detail: str) -> None:
    # Between good rows, so that a shift of the values would show.
    checked = rows.check(ragged([[1.0, 0.0, 0.0], row, [0.0, 0.0, 2.0]]), 3)
    assert checked.reasons == [None, reason, None]
    assert checked.details[1] == detail
    np.testing.assert_array_equal(checked.unit, np.eye(3, dtype=np.float32)[[0, 2]])


def test_nothing_and_all_bad_and_dimension_zero() -> None:
    assert rows.check(ragged([]), 3).unit.shape == (0, 3)
    assert rows.check(ragged([None, []]), 3).unit.shape == (0, 3)
    assert rows.check(ragged([None, []]), 0).reasons == ["null_vector", "empty_vector"]


@given(st.lists(FINITE, min_size=1, max_size=40), st.integers(0, 9), st.integers(0, 9))
@settings(max_examples=100, deadline=None)
def test_a_rows_bytes_do_not_depend_on_its_neighbours(row: list[float], before: int, after: int) -> None:
    row[0] = row[0] or 1.0
    rng = np.random.default_rng(len(row))
    other = rng.standard_normal((before + after, len(row)))
    stack = np.concatenate([other[:before], [row], other[before:]])
    alone = rows.normalise(np.array([row]))[1]
    assert rows.digests(rows.normalise(stack)[1][before : before + 1]) == rows.digests(alone)


def test_equal_directions_hash_alike_and_minus_zero_is_zero() -> None:
    unit = rows.normalise(np.array([[1.0, 0.0], [4.0, -0.0], [0.0, 1.0]]))[1]
    first, second, third = rows.digests(unit)
    assert first == second != third
    assert len(first) == 16
