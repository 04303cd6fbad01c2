"""Reading seeds: known id pairs, or paired anchor vectors that lie in neither cloud; and checking them before work."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from veclink import arrow_cols, tables
from veclink.errors import InputError
from veclink.kernels.seeds import consistency
from veclink.kernels.views import Anchors
from veclink.runs.prepare import PreparedCloud
from veclink.settings import LinkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Pair = tuple[str, str]

MIN_SEEDS = 3
# With fewer, the seeds of unlike encoders often fail the permutation test although every pair is right.
MIN_SEEDS_TO_REFUSE = 12
P_VALUE_LIMIT = 0.05


@dataclass(frozen=True)
class _Point:
    row: int
    vector: np.ndarray


@dataclass(frozen=True)
class Seeds:
    """What a run starts from.

    anchors: the seeds as anchors, nothing promoted yet. names: their id pairs, in the same order. in_clouds: whether
    those are ids of the clouds (outside anchors have ids of their own). held_back: id pairs kept out to see whether
    the run recovers them.
    """

    anchors: Anchors
    names: tuple[Pair, ...]
    in_clouds: bool
    held_back: tuple[Pair, ...]
    warnings: tuple[str, ...]

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Id pairs of the clouds that are seeds."""
        return self.names if self.in_clouds else ()

    def without(self, dropped: set[int]) -> Seeds:
        """The same without the seeds at some positions."""
        kept = np.array([i not in dropped for i in range(len(self.names))], dtype=bool)
        names = tuple(n for n, k in zip(self.names, kept, strict=True) if k)
        return replace(self, anchors=self.anchors.keep_seeds(kept), names=names)


def read_pairs(spark: SparkSession, location: str, what: str) -> list[Pair]:
    """Distinct (source_id, target_id) pairs of a CSV, Parquet or Delta table, sorted.

    Raises InputError on missing columns, null ids, no rows, or one id in two different pairs.
    """
    rows = tables.read_input(spark, location).rows
    rows = rows.toDF(*[name.strip() for name in rows.columns])
    missing = [c for c in ("source_id", "target_id") if c not in rows.columns]
    if missing:
        raise InputError(
            f"{what} {location} lacks column {' and '.join(missing)}",
            got=f"columns {rows.columns}",
            do="Name the columns source_id and target_id",
        )
    table = rows.select(*[rows[c].cast("string").alias(c) for c in ("source_id", "target_id")]).distinct().toArrow()
    pairs = sorted(zip(table["source_id"].to_pylist(), table["target_id"].to_pylist(), strict=True), key=str)
    if not pairs:
        raise InputError(f"{what} {location} has 0 rows", do="Give a row for each known pair")
    lacking = [pair for pair in pairs if None in pair]
    if lacking:
        raise InputError(
            f"{what} {location} has rows that lack an id",
            got=_first(lacking),
            do="Give both ids in every row; a quote that is not closed swallows the rows after it",
        )
    for side, ids in (("source_id", [a for a, _ in pairs]), ("target_id", [b for _, b in pairs])):
        twice = sorted(i for i, n in Counter(ids).items() if n > 1)
        if twice:
            raise InputError(
                f"{what} {location} gives one {side} two partners",
                got=_first(twice),
                do="Keep one partner per id: an object has one vector on each side",
            )
    return pairs


def digest(pairs: list[Pair]) -> str:
    """A name for a set of pairs, whatever file they came in."""
    return hashlib.sha256(repr(pairs).encode()).hexdigest()[:16]


def from_pairs(
    spark: SparkSession, pairs: list[Pair], clouds: tuple[PreparedCloud, PreparedCloud], settings: LinkSettings
) -> Seeds:
    """Seeds from what `read_pairs` read; some held back as `link.holdback_seeds` says.

    Raises InputError on ids that are in neither the cloud nor its rejects, on too few seeds, and on seeds that do not
    agree with each other.
    """
    warnings: list[str] = []
    found = [_look_up(spark, c, [p[i] for p in pairs]) for i, c in enumerate(clouds)]
    known = [p for p in pairs if p[0] in found[0] and p[1] in found[1]]
    if len(known) < len(pairs):
        _refuse_unknown(spark, clouds, pairs, found)
        lost = sorted(set(pairs) - set(known))
        warnings.append(f"{len(lost)} seeds dropped, a vector of theirs was rejected: {_first(lost)}")
    known, repeated = _one_point_each(known, found)
    if repeated:
        warnings.append(f"{len(repeated)} seeds dropped, their vectors repeat another seed's: {_first(repeated)}")
    rng = np.random.default_rng([settings.random_seed, len(known)])
    out = set(rng.permutation(len(known))[: settings.holdback_seeds].tolist())
    held_back = tuple(p for i, p in enumerate(known) if i in out)
    used = tuple(p for i, p in enumerate(known) if i not in out)
    if len(used) < MIN_SEEDS:
        raise InputError(
            f"a run needs at least {MIN_SEEDS} seeds",
            got=f"{len(used)} usable ones, {len(held_back)} held back (link.holdback_seeds)",
            do="Give more seeds, or hold back fewer",
        )
    seed_rows = np.array([[f[p[i]].row for i, f in enumerate(found)] for p in used], dtype=np.int64)
    vectors = [np.stack([f[p[i]].vector for p in used]) for i, f in enumerate(found)]
    warnings += _check(vectors[0], vectors[1], settings, lambda: _turned(spark, used, clouds))
    anchors = Anchors(vectors[0], vectors[1], seed_rows, np.empty((0, 2), np.int64))
    return Seeds(anchors, used, True, held_back, tuple(warnings))


def from_vectors(spark: SparkSession, anchors: tuple[PreparedCloud, PreparedCloud], settings: LinkSettings) -> Seeds:
    """Seeds from two prepared tables of anchor vectors, paired by equal id; they need not lie in the clouds.

    Raises InputError if fewer than three ids are on both sides or the pairs do not agree with each other.
    """
    found = [_look_up(spark, a, None) for a in anchors]
    shared = sorted(set(found[0]) & set(found[1]))
    known, repeated = _one_point_each([(i, i) for i in shared], found)
    if len(known) < MIN_SEEDS:
        raise InputError(
            f"a run needs at least {MIN_SEEDS} anchors with the same id in both anchor tables",
            got=f"{len(known)} of {len(found[0])} and {len(found[1])}",
        )
    warnings = [f"{len(repeated)} anchors dropped, their vectors repeat another's"] if repeated else []
    vectors = [np.stack([f[p[i]].vector for p in known]) for i, f in enumerate(found)]
    warnings += _check(vectors[0], vectors[1], settings)
    none = np.empty((0, 2), np.int64)
    return Seeds(Anchors(vectors[0], vectors[1], none, none), tuple(known), False, (), tuple(warnings))


def nothing(dims: list[int]) -> Seeds:
    """No seeds, for clouds of these dimensions."""
    empty = [np.empty((0, d), np.float32) for d in dims]
    none = np.empty((0, 2), np.int64)
    return Seeds(Anchors(empty[0], empty[1], none, none), (), True, (), ())


def _check(
    source: np.ndarray,
    target: np.ndarray,
    settings: LinkSettings,
    turned: Callable[[], tuple[np.ndarray, np.ndarray] | None] = lambda: None,
) -> list[str]:
    """turned: vectors of the pairs read the other way round, where all ids are on both sides."""
    if settings.seed_check == "off" or len(source) < 4:
        return []
    found = consistency(source, target, settings.random_seed)
    if found.p_value <= P_VALUE_LIMIT:
        return []
    text = (
        f"the {len(source)} seed pairs do not agree with each other: their distances on the two sides correlate "
        f"{found.correlation:.2f}, no better than shuffled pairs do (p = {found.p_value:.3f})"
    )
    other = turned()
    if other is not None:
        back = consistency(other[0], other[1], settings.random_seed)
        if back.p_value <= P_VALUE_LIMIT:
            text += f"; with the two columns swapped they do ({back.correlation:.2f}, p = {back.p_value:.3f})"
    if settings.seed_check == "error" and len(source) >= MIN_SEEDS_TO_REFUSE:
        raise InputError(
            text, do="Check that the pairs are in the right order and columns, or set link.seed_check=warn to go on"
        )
    return [text]


def _turned(
    spark: SparkSession, pairs: tuple[Pair, ...], clouds: tuple[PreparedCloud, PreparedCloud]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Vectors of (target_id in the source, source_id in the target); None if an id is not there."""
    found = [_look_up(spark, cloud, [p[1 - side] for p in pairs]) for side, cloud in enumerate(clouds)]
    if any(p[1 - side] not in f for side, f in enumerate(found) for p in pairs):
        return None
    return np.stack([found[0][b].vector for _, b in pairs]), np.stack([found[1][a].vector for a, _ in pairs])


def _look_up(spark: SparkSession, cloud: PreparedCloud, wanted: list[str] | None) -> dict[str, _Point]:
    """Row and vector of the given ids of a cloud (all of them for None); ids that are not there are left out."""
    ids = tables.read(spark, f"{cloud.folder}/ids").select("id", "row")
    if wanted is not None:
        ids = ids.join(spark.createDataFrame(pa.table({"id": pa.array(wanted, pa.string())})), "id")
    table = ids.join(tables.read(spark, f"{cloud.folder}/points"), "row").toArrow()
    vectors = arrow_cols.matrix(table["vector"], cloud.dim)
    rows = table["row"].to_pylist()
    return {i: _Point(row, vector) for i, row, vector in zip(table["id"].to_pylist(), rows, vectors, strict=True)}


def _refuse_unknown(
    spark: SparkSession, clouds: tuple[PreparedCloud, PreparedCloud], pairs: list[Pair], found: list[dict[str, _Point]]
) -> None:
    for side, cloud in enumerate(clouds):
        missing = {p[side] for p in pairs} - set(found[side])
        if not missing:
            continue
        rejects = tables.read(spark, f"{cloud.folder}/rejects").select("id").distinct().toArrow()
        unknown = sorted(missing - set(rejects["id"].to_pylist()))
        if unknown:
            names = ("source", "target")
            there = _look_up(spark, clouds[1 - side], unknown)
            swapped = "; they are in the other table: the columns look swapped" if len(there) == len(unknown) else ""
            raise InputError(
                f"seeds name {len(unknown)} ids that are not in the {names[side]} {cloud.input}{swapped}",
                got=_first(unknown),
                do=f"Check that column {names[side]}_id holds ids of the {names[side]} table",
            )


def _one_point_each(pairs: list[Pair], found: list[dict[str, _Point]]) -> tuple[list[Pair], list[Pair]]:
    kept, repeated = [], []
    taken: tuple[set[int], set[int]] = (set(), set())
    for pair in pairs:
        points = [found[side][pair[side]].row for side in (0, 1)]
        if any(points[side] in taken[side] for side in (0, 1)):
            repeated.append(pair)
            continue
        kept.append(pair)
        for side in (0, 1):
            taken[side].add(points[side])
    return kept, repeated


def _first(items: list, limit: int = 5) -> str:  # type: ignore[type-arg]
    more = f" and {len(items) - limit} more" if len(items) > limit else ""
    return f"{', '.join(map(str, items[:limit]))}{more}"
