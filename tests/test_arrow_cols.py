"""Arrow list columns to matrices and back: every trap the module names."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from veclink import arrow_cols

RAGGED = [[1.0, 2.0], None, [], [3.0, None, math.nan], [4.0]]


def lists(column: pa.Array) -> list[list[float] | None]:
    """What `ragged` says, put together again."""
    values, lengths, valid, _ = arrow_cols.ragged(column)
    ends = np.cumsum(lengths)
    return [values[e - n : e].tolist() if ok else None for e, n, ok in zip(ends, lengths, valid, strict=True)]


@pytest.mark.parametrize("start", range(6))
@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_sliced_ragged_column(start: int, kind: pa.DataType) -> None:
    data = [None if row is None else [None if v is None else np.float16(v) for v in row] for row in RAGGED]
    column = pa.array(data, pa.list_(kind)).slice(start, 3)
    want = [None if row is None else [math.nan if v is None else v for v in row] for row in RAGGED[start : start + 3]]
    np.testing.assert_equal(lists(column), want)
    nulls = [sum(v is None for v in row or []) for row in RAGGED[start : start + 3]]
    assert arrow_cols.ragged(column)[3].tolist() == nulls


def test_sliced_fixed_size_list_with_a_null() -> None:
    column = pa.array([[1, 2], [3, 4], None, [5, 6], [7, 8]], pa.list_(pa.float32(), 2)).slice(1, 3)
    assert lists(column) == [[3, 4], None, [5, 6]]


def test_chunked_column() -> None:
    column = pa.chunked_array([pa.array([[1.0]]), pa.array([[2.0], [3.0]]).slice(1)])
    assert lists(column) == [[1.0], [3.0]]


def test_matrix_is_writable_and_column_brings_it_back() -> None:
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    back = arrow_cols.matrix(arrow_cols.column(rows).slice(1), 3)
    back[0, 0] = -1
    np.testing.assert_array_equal(back[1:], rows[2:])


@pytest.mark.parametrize("data", [[[1.0], None], [[1.0], [1.0, 2.0]], [[1.0], [None]], [[1.0], []]])
def test_matrix_refuses_null_and_ragged_rows(data: list[list[float | None] | None]) -> None:
    with pytest.raises(ValueError, match="null or ragged"):
        arrow_cols.matrix(pa.array(data, pa.list_(pa.float32())), 1)


def test_column_with_nulls() -> None:
    rows = np.array([[1, 2], [3, 4]], np.float32)
    column = arrow_cols.column(rows, np.array([False, True, False, True]))
    assert column.to_pylist() == [None, [1, 2], None, [3, 4]]


def test_batch_rows_times_dimension_stay_within_arrow() -> None:
    assert arrow_cols.rows_per_batch(768) == 65_536
    for dim in (32_769, 65_536, 1_000_000, 2**31 - 1):
        assert 1 <= arrow_cols.rows_per_batch(dim) * dim <= arrow_cols.MAX_LIST_VALUES
    too_many = np.lib.stride_tricks.as_strided(
        np.zeros(1, np.float32), (2**21, 1024), (0, 0)
    )  # 2**31 values, no memory
    with pytest.raises(ValueError, match="rows_per_batch"):
        arrow_cols.column(too_many)


@pytest.mark.parametrize("values", [1, 2, 3, 4, 100])
def test_parts_bound_the_values_and_lose_no_row(values: int) -> None:
    batch = pa.RecordBatch.from_pydict({"id": pa.array(range(5)), "vector": pa.array(RAGGED, pa.list_(pa.float64()))})
    batch = batch.slice(1)
    cut = list(arrow_cols.parts(batch, "vector", values))
    assert [i for part in cut for i in part.column("id").to_pylist()] == [1, 2, 3, 4]
    for part in cut:
        assert part.num_rows == 1 or sum(len(v or []) for v in part.column("vector").to_pylist()) <= values
