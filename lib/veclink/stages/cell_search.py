"""Cell search: the views of a round compared in clouds too large to compare every row with every row.

fit      a task a map: those of the views, and the base map of the round with the centres of its cells
homes    every row's cell under the base map
crowds   every row's density under the base map, from the rows around it
matches  a task a group of neighbouring cells: the mutual best partners there under every view; votes are summed by pair

Cells and densities, 16 bytes a row, go through scratch tables that tasks read whole; vectors do not travel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veclink import schemas, shards, tables
from veclink.backends import Engine
from veclink.candidates import CANDIDATE_KEYS, CANDIDATE_SUMS, of_view, summed
from veclink.kernels.cell_matches import Around, CellMatches, densities
from veclink.kernels.cells import Homes, cell_centres, cell_groups, home_cells, homes, nearest_cells
from veclink.kernels.spaces import Maps, fit_maps
from veclink.kernels.views import Anchors, RoundViews, View
from veclink.shards import Shard
from veclink.steps import step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Matrix = NDArray[np.float32]
Rows = NDArray[np.int64]
Batches = Iterable[pa.RecordBatch]

# Rows mapped at once when their cells are sought.
BLOCK_ROWS = 65_536
# Fewest sampled rows that make a cell: the centre of fewer is chance.
SAMPLED_MIN = 16

ARRAYS = "number INT, part STRING, width INT, data BINARY"
# place: a row of either cloud in one numbering, targets behind the sources.
HOMES = "place BIGINT, cell INT"
CROWDS = "place BIGINT, density FLOAT, edge FLOAT"


@dataclass(frozen=True)
class CellOptions:
    """rows: of both clouds in a cell, about. probes: cells that a row is compared with. group_rows: of both clouds at
    home in the cells of one task, about. sample_rows: of either cloud that means and centres are taken from.
    """

    rows: int
    probes: int
    group_rows: int
    sample_rows: int


@dataclass(frozen=True)
class Sources:
    """Which source rows take part in a round: `count` of them, chosen by `key`, and those of `always`; or all.

    Fewer make a round cheaper, and leave the share of them that have a partner as it is.
    """

    count: int
    key: tuple[int, ...]
    always: Rows

    def rows(self, of: int) -> Rows:
        """Their row numbers, rising. of: rows of the source cloud."""
        if self.count >= of:
            return np.arange(of)
        return np.union1d(np.random.default_rng(self.key).permutation(of)[: self.count], self.always)


@dataclass(frozen=True)
class _Task:
    """What tasks of a round need, as plain values. homes, crowds: files of the scratch tables, none while not made."""

    clouds: tuple[Shard, Shard]
    sources: Sources
    engine: Engine
    options: CellOptions
    base: Maps
    centres: Matrix
    near: Rows
    homes: tuple[str, ...] = ()
    crowds: tuple[str, ...] = ()

    @property
    def sizes(self) -> tuple[int, int]:
        """Rows of both clouds."""
        return self.clouds[0].rows, self.clouds[1].rows

    def rows(self, side: int) -> Rows:
        """Row numbers of a side that take part, rising."""
        return self.sources.rows(self.sizes[0]) if side == 0 else np.arange(self.sizes[1])

    def places(self, side: int, rows: Rows) -> Rows:
        """Where rows of a side stand in the numbering of both."""
        return rows + side * self.sizes[0]


@dataclass(frozen=True)
class CellSearch:
    """Where and how views are compared. folder: for scratch tables, which are gone after each round."""

    spark: SparkSession
    clouds: tuple[Shard, Shard]
    engine: Engine
    options: CellOptions
    folder: str

    def candidates(self, sources: Sources, anchors: Anchors, views: RoundViews) -> pa.Table:
        """What the views of a round propose, summed by pair (columns schemas.CANDIDATES)."""
        if views.bag_share is not None:
            return self._compare(sources, anchors, views)
        # The maps of a start need not agree: each has cells and densities of its own.
        single = [replace(views, views=[view]) for view in views.views]
        found = pa.concat_tables([self._compare(sources, anchors, one) for one in single])
        sums = found.group_by(list(CANDIDATE_KEYS)).aggregate([(c, "sum") for c in CANDIDATE_SUMS])
        return sums.rename_columns([c.removesuffix("_sum") for c in sums.column_names])

    def _compare(self, sources: Sources, anchors: Anchors, views: RoundViews) -> pa.Table:
        with step(self.spark, "fit"):
            maps, task = self._fit(sources, anchors, views)
        tables.remove_scratch(self.spark, self.folder)  # left by a run that was killed
        try:
            with step(self.spark, "homes"):
                home = self._keep(self._homes(task), f"{self.folder}/homes", HOMES)
            task = replace(task, homes=tuple(tables.files(home)))
            groups = self._groups(home, task)
            with step(self.spark, "crowds"):
                crowds = self._keep(self._crowds(task, groups), f"{self.folder}/crowds", CROWDS)
            task = replace(task, crowds=tuple(tables.files(crowds)))
            with step(self.spark, "matches"):
                return self._matches(task, groups, anchors.rows, maps, views).toArrow()
        finally:
            tables.remove_scratch(self.spark, self.folder)

    def _keep(self, rows: DataFrame, location: str, schema: str) -> DataFrame:
        tables.write_scratch(rows, location)
        return tables.read_scratch(self.spark, location, schema)

    def _run(self, parts: int, work: Callable[[int], Iterator[pa.RecordBatch]], schema: str) -> DataFrame:
        """A task for each of some numbers."""

        def each(batches: Batches) -> Batches:
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    yield from work(number)

        return self.spark.range(0, parts, 1, parts).mapInArrow(each, schema)

    def _fit(self, sources: Sources, anchors: Anchors, views: RoundViews) -> tuple[list[Maps], _Task]:
        """The maps of the views, and with the base map all that cells need. One view is its own base."""
        count = len(views.views)
        if count > 1:
            whole = View(count, np.arange(len(anchors.rows)), 1)
            views = replace(views, views=[*views.views, whole])
        clouds, engine, options, last = self.clouds, self.engine, self.options, len(views.views) - 1

        def fit(number: int) -> Iterator[pa.RecordBatch]:
            both = np.asarray(shards.load(clouds[0])), np.asarray(shards.load(clouds[1]))
            rng = np.random.default_rng(views.how.key)  # the same rows for all views
            taken = sources.rows(len(both[0])), np.arange(len(both[1]))
            samples = [x[_some(rows, options.sample_rows, rng)] for x, rows in zip(both, taken, strict=True)]
            known = anchors.vectors(views.views[number], both)
            maps = fit_maps((samples[0], samples[1]), known, views.comparison(number), engine.nearest)
            parts = {f"mean {side}": mean for side, mean in enumerate(maps.means)}
            parts |= {f"weights {side}": w for side, w in enumerate(maps.weights) if w is not None}
            if number == last:
                mapped = np.concatenate([maps.apply(side, x) for side, x in enumerate(samples)])
                most = max(SAMPLED_MIN, len(mapped) * options.rows // sum(map(len, taken)))
                parts["centres"] = cell_centres(mapped, most, rng)
            yield _packed(number, parts)

        found = self._run(last + 1, fit, ARRAYS).toArrow().to_pylist()
        arrays = {(row["number"], row["part"]): _unpacked(row) for row in found}
        maps = [_maps(arrays, number) for number in range(last + 1)]
        centres = arrays[last, "centres"]
        near = nearest_cells(centres, options.probes)
        return maps[:count], _Task(clouds, sources, engine, options, maps[last], centres, near)

    def _homes(self, task: _Task) -> DataFrame:
        """Every row's cell (columns HOMES)."""
        blocks = [(side, start) for side in (0, 1) for start in range(0, len(task.rows(side)), BLOCK_ROWS)]

        def home(number: int) -> Iterator[pa.RecordBatch]:
            side, start = blocks[number]
            rows = task.rows(side)[start : start + BLOCK_ROWS]
            points = task.base.apply(side, shards.load(task.clouds[side])[rows])
            cells = home_cells(points, task.centres)
            yield pa.RecordBatch.from_pydict({"place": task.places(side, rows), "cell": cells})

        return self._run(len(blocks), home, HOMES)

    def _groups(self, home: DataFrame, task: _Task) -> list[Rows]:
        """Neighbouring cells that one task works on together."""
        counted = home.groupBy("cell").count().toArrow()
        sizes = np.zeros(len(task.centres), np.int64)
        sizes[counted["cell"].to_numpy()] = counted["count"].to_numpy()
        return cell_groups(sizes, task.options.group_rows)

    def _crowds(self, task: _Task, groups: list[Rows]) -> DataFrame:
        """Every row's density (columns CROWDS)."""

        def crowd(number: int) -> Iterator[pa.RecordBatch]:
            group = _Group(task, groups[number])
            points = [task.base.apply(side, x) for side, x in enumerate(group.vectors)]
            for side in (0, 1):
                cells, home = group.cells[side], np.isin(group.cells[side], groups[number])
                queries, base = (points[side][home], cells[home]), (points[1 - side], group.cells[1 - side])
                density, edge = densities(queries, base, task.near, task.engine.k, task.engine.nearest)
                places = task.places(side, group.rows[side][home])
                yield pa.RecordBatch.from_pydict({"place": places, "density": density, "edge": edge})

        return self._run(len(groups), crowd, CROWDS)

    def _matches(
        self, task: _Task, groups: list[Rows], anchors: Rows, maps: list[Maps], views: RoundViews
    ) -> DataFrame:
        """What the views find in each group, summed by pair (columns schemas.CANDIDATES)."""
        search = task.engine.k, task.engine.nearest

        def match(number: int) -> Iterator[pa.RecordBatch]:
            group, held = _Group(task, groups[number]), views.held(task.clouds[0].rows)
            around = group.around()
            known = anchors[group.at_home(anchors)]
            for i, each in enumerate(maps):
                points = [each.apply(side, x) for side, x in enumerate(group.vectors)]
                sides = list(zip(around, points, strict=True))
                compared = CellMatches(sides[0], sides[1], task.near, groups[number], search)
                yield of_view(compared, known, None if held is None else held[:, i])

        return summed(self._run(len(groups), match, schemas.CANDIDATES))


class _Group:
    """What a task sees of a group of cells, by side: rows, their cells and vectors, in and around the cells."""

    def __init__(self, task: _Task, group: Rows) -> None:
        self._task, self._group = task, group
        self._homes = _homes_of(task.homes, task.sizes, len(task.centres))
        seen = np.unique(task.near[group])
        self.rows = [homes.rows(seen) for _, homes in self._homes]
        self.cells = [cells[rows] for (cells, _), rows in zip(self._homes, self.rows, strict=True)]
        self.vectors = [shards.load(c)[rows] for c, rows in zip(task.clouds, self.rows, strict=True)]

    def around(self) -> list[Around]:
        """The same with densities."""
        crowds = shards.numbers(self._task.crowds, sum(self._task.sizes), ("density", "edge"), 0.0)
        places = [self._task.places(side, rows) for side, rows in enumerate(self.rows)]
        return [
            Around(rows, cells, *(c[place] for c in crowds))
            for rows, cells, place in zip(self.rows, self.cells, places, strict=True)
        ]

    def at_home(self, pairs: Rows) -> NDArray[np.bool_]:
        """Which of some (p, 2) row pairs have a row at home in the group."""
        own = [np.isin(cells[pairs[:, side]], self._group) for side, (cells, _) in enumerate(self._homes)]
        return own[0] | own[1]


@functools.lru_cache(maxsize=2)
def _homes_of(files: tuple[str, ...], sizes: tuple[int, int], cells: int) -> list[tuple[NDArray[np.int32], Homes]]:
    """Both sides' cells by row (-1: the row takes no part), and rows by cell."""
    [home] = shards.numbers(files, sum(sizes), ("cell",), -1)
    return [(side, homes(side, cells)) for side in (home[: sizes[0]], home[sizes[0] :])]


def _some(rows: Rows, most: int, rng: np.random.Generator) -> Rows:
    return rows if len(rows) <= most else np.sort(rng.choice(rows, most, replace=False))


def _packed(number: int, parts: dict[str, Matrix]) -> pa.RecordBatch:
    """Arrays as rows (columns ARRAYS)."""
    flat = [np.atleast_2d(np.ascontiguousarray(x, np.float32)) for x in parts.values()]
    return pa.RecordBatch.from_pydict(
        {
            "number": pa.array([number] * len(parts), pa.int32()),
            "part": pa.array(list(parts), pa.string()),
            "width": pa.array([x.shape[1] for x in flat], pa.int32()),
            "data": pa.array([x.tobytes() for x in flat], pa.binary()),
        }
    )


def _unpacked(row: dict[str, Any]) -> Matrix:
    return np.frombuffer(row["data"], np.float32).reshape(-1, row["width"])


def _maps(arrays: dict[tuple[int, str], Matrix], number: int) -> Maps:
    means = [arrays[number, f"mean {side}"][0] for side in (0, 1)]
    weights = [arrays.get((number, f"weights {side}")) for side in (0, 1)]
    return Maps((means[0], means[1]), (weights[0], weights[1]))
