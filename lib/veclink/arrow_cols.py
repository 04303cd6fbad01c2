"""The one place where Arrow list columns become matrices and back.

Traps this module exists for (each reproduced): `.values` of a sliced list column ignores the slice, a null list
vanishes in `.flatten()`, ragged rows reshape without an error, zero-copy views are read-only, and one list column
holds at most 2**31 - 1 values.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MAX_LIST_VALUES = 2**31 - 1


def rows_per_batch(dim: int, limit: int = 65_536) -> int:
    """Rows of `dim` values that fit in one Arrow list column, at most `limit`."""
    return max(1, min(limit, MAX_LIST_VALUES // max(dim, 1)))


def ragged(column: pa.Array | pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Take a list column apart without assuming that rows are alike.

    Returns `values` (float64, all rows one after the other, null elements as NaN), `lengths` (int64 per row, 0 for a
    null list), `valid` (bool per row, False for a null list) and `null_elements` (int64 per row).
    """
    array = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    n = len(array)
    valid = np.asarray(array.is_valid())
    # flatten() honours the slice and drops null lists, so lengths of null lists must count as 0.
    flat = array.flatten()
    offsets = np.asarray(array.offsets)
    lengths = np.where(valid, np.diff(offsets), 0).astype(np.int64)
    nulls = np.zeros(n, dtype=np.int64)
    if flat.null_count:
        owner = np.repeat(np.arange(n), lengths)
        nulls = np.bincount(owner[np.asarray(flat.is_null())], minlength=n).astype(np.int64)
    values = flat.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return values, lengths, valid, nulls


def matrix(column: pa.Array | pa.ChunkedArray, dim: int) -> np.ndarray:
    """A list column whose rows all have `dim` non-null values, as a writable float32 (rows, dim) matrix.

    Raises ValueError if a row is null, has another length or holds a null: callers read tables we wrote ourselves,
    so this is a broken table and not bad user input.
    """
    values, lengths, valid, nulls = ragged(column)
    if not valid.all() or (lengths != dim).any() or nulls.any():
        raise ValueError(f"list column is not a ({len(lengths)}, {dim}) matrix: null or ragged rows")
    return values.reshape(len(lengths), dim).astype(np.float32)


def column(rows: np.ndarray, valid: np.ndarray | None = None) -> pa.ListArray:
    """A float (rows, dim) matrix as a list<float32> column.

    valid: (n,) bool with as many True as the matrix has rows; the column then has n entries, null where False.
    """
    count, dim = rows.shape
    if count * dim > MAX_LIST_VALUES:
        raise ValueError(f"{count} rows of {dim} values do not fit in one Arrow list column; use rows_per_batch")
    present = np.ones(count, dtype=np.bool_) if valid is None else valid
    offsets = np.concatenate([[0], np.cumsum(np.where(present, dim, 0))]).astype(np.int32)
    values = pa.array(np.ascontiguousarray(rows, dtype=np.float32).reshape(-1))
    mask = None if valid is None else pa.array(~valid)
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=mask)


def parts(batch: pa.RecordBatch, name: str, values: int = 2**22) -> Iterator[pa.RecordBatch]:
    """Cut a batch into slices whose list column `name` holds at most `values` values, at least one row each.

    Nothing is copied. It bounds the memory of what is computed from one slice, whatever batches the caller is fed.
    """
    column = batch.column(name)
    lengths = np.nan_to_num(pc.list_value_length(column).to_numpy(zero_copy_only=False)).astype(np.int64)
    ends = np.cumsum(lengths)
    start = 0
    while start < batch.num_rows:
        base = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, base + values, side="right")))
        yield batch.slice(start, stop - start)
        start = stop
