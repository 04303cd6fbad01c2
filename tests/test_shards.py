"""The local copy of a points table."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from veclink import arrow_cols, shards
from veclink.shards import Shard


def lay_out(folder: Path, matrix: np.ndarray, parts: int) -> Shard:
    """The rows of a matrix spread over some files, in no order, under a path with a space in it."""
    order = np.random.default_rng(0).permutation(len(matrix))
    folder = folder / "with space"
    folder.mkdir()
    uris = []
    for i, rows in enumerate(np.array_split(order, parts)):
        path = folder / f"part{i}.parquet"
        pq.write_table(pa.table({"row": rows, "vector": arrow_cols.column(matrix[rows])}), path)
        uris.append("file:" + str(path).replace(" ", "%20"))  # as Spark names files
    return Shard(tuple(uris), len(matrix), matrix.shape[1], str(folder))


@pytest.fixture
def matrix():
    return np.random.default_rng(1).standard_normal((101, 7)).astype(np.float32)


def test_rows_stand_where_their_numbers_say(tmp_path, matrix):
    shard = lay_out(tmp_path, matrix, 4)
    loaded = shards.load(shard)
    np.testing.assert_array_equal(loaded, matrix)
    assert not loaded.flags.writeable
    assert isinstance(loaded, np.memmap)


def test_the_copy_is_made_once_and_can_be_discarded(tmp_path, matrix):
    shard = lay_out(tmp_path, matrix, 2)
    shards.load(shard)
    made = shard.local_path.stat().st_mtime_ns
    shards.load.cache_clear()
    shards.load(shard)
    assert shard.local_path.stat().st_mtime_ns == made
    shards.discard(shard)
    assert not list(shard.local_path.parent.iterdir())
    shards.discard(shard)


def test_a_table_of_another_size_is_refused_and_leaves_nothing(tmp_path, matrix):
    good = lay_out(tmp_path, matrix, 2)
    short = Shard(good.files, 102, 7, good.work_dir)
    with pytest.raises(RuntimeError, match="holds 101 rows, expected 102"):
        shards.load(short)
    assert not list(short.local_path.parent.glob("*.npy"))
    assert not list(short.local_path.parent.glob("*.partial"))


def _sum(shard: Shard) -> float:
    return float(shards.load(shard).sum())


def test_processes_that_start_together_build_one_copy(tmp_path, matrix):
    shard = lay_out(tmp_path, matrix, 3)
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert pool.map(_sum, [shard] * 3) == [float(matrix.sum())] * 3
    assert len(list(shard.local_path.parent.glob("*.npy"))) == 1


def test_numbers_stand_at_their_places_whatever_file_they_are_in(tmp_path):
    uris = []
    for i, rows in enumerate(([4, 0], [2], [])):
        path = tmp_path / f"part{i}.parquet"
        values = pa.array([10 * r for r in rows], pa.int32())
        pq.write_table(pa.table({"place": pa.array(rows, pa.int64()), "cell": values, "other": values}), path)
        uris.append(f"file:{path}")
    [cells] = shards.numbers(tuple(uris), 6, ("cell",), -1)
    assert cells.tolist() == [0, -1, 20, -1, 40, -1]
    assert cells.dtype == np.int32
    assert not cells.flags.writeable
