"""Prepare one cloud: check, normalise, number, write. See stages/prepare.py for the steps."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from veclink import __version__, arrow_cols, schemas, tables
from veclink.errors import InputError
from veclink.kernels import mixed_space
from veclink.runtime import output_lock
from veclink.settings import PrepareSettings, Settings
from veclink.stages import prepare as stage
from veclink.steps import step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POINTS_FILE_BYTES = 128 * 2**20
_TABLES = ("points", "ids", "rejects")  # statistics is written last and marks the others complete


@dataclass(frozen=True)
class PreparedCloud:
    """A cloud on disk: tables points, ids, rejects and statistics under `folder`.

    points: distinct vectors, numbered 0 to points - 1. rows_kept: accepted ids; duplicate_rows of them share a vector
    with another. encoder: None if nobody named it.
    """

    folder: str
    encoder: str | None
    dim: int
    points: int
    rows_kept: int
    rows_rejected: int
    duplicate_rows: int
    input: str
    input_version: str
    prepare_key: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Place:
    """Where rows come from and go to."""

    location: str
    out: str


@dataclass(frozen=True)
class _Profile:
    """What a first look at the source says."""

    rows: int
    dim: int
    encoder: str | None


@dataclass(frozen=True)
class _Tally:
    """What the checks said: rows by reason, norms of the accepted rows."""

    kept: int
    points: int
    rejected: dict[str, int]
    norms: tuple[float, float, float] | None

    @property
    def rows_rejected(self) -> int:
        return sum(self.rejected.values())


def prepare(
    spark: SparkSession, location: str, out: str, settings: Settings, encoder: str | None = None
) -> PreparedCloud:
    """Read the table at `location` and write a prepared cloud to the folder `out`, or return it if it is there already.

    encoder: name of the model that made the vectors. With prepare.encoder_column it chooses the rows; without the
    argument the most frequent name in that column is taken.
    Raises InputError if the source cannot be used (the rejects table is then written, with a reason per row), and
    RunLocked if another process writes to `out`.
    """
    location, out = tables.resolve(location), tables.resolve_folder(out)
    if tables.overlap(location, out):
        raise InputError(
            "the output folder must be apart from the input, which is never changed", got=f"{location} and {out}"
        )
    with output_lock(out):
        if tables.is_local(location) and not tables.is_delta(spark, location) and open_cloud(spark, location):
            raise InputError(f"{location} is a prepared cloud already", do="Give it to `veclink link` as it is")
        source = tables.read_input(spark, location)
        stored = open_cloud(spark, out)
        encoder = _agreed_encoder(stored, source.version, encoder, settings.prepare)
        key = prepare_key(source.version, settings.prepare, encoder)
        if stored is not None and stored.prepare_key == key:
            return stored
        # From here to the last write the folder is no prepared cloud, so that a crash cannot leave a mixture of two.
        tables.clear(spark, f"{out}/statistics")
        raw = stage.select(source.rows, settings.prepare, location)
        with step(spark, "prepare"), tables.reading(location):
            profile = _look(raw, settings.prepare, location, encoder)
            tally, warnings = _write(spark, raw, profile, _Place(location, out), settings.prepare)
        cloud = PreparedCloud(
            folder=out,
            encoder=profile.encoder,
            dim=profile.dim,
            points=tally.points,
            rows_kept=tally.kept,
            rows_rejected=tally.rows_rejected,
            duplicate_rows=tally.kept - tally.points,
            input=location,
            input_version=source.version,
            prepare_key=key,
            warnings=warnings,
        )
        _write_statistics(spark, cloud, tally)
        return cloud


def _write(
    spark: SparkSession, raw: DataFrame, profile: _Profile, place: _Place, settings: PrepareSettings
) -> tuple[_Tally, tuple[str, ...]]:
    """Write rejects, ids and points. Raises InputError, after the rejects are written, if too many rows are bad."""
    out, only = place.out, profile.encoder if settings.encoder_column is not None else None
    with _scratch(spark, out) as keep:
        checked = keep(stage.check(raw, profile.dim), schemas.CHECKED)
        judged = keep(stage.judge(checked, only), schemas.JUDGED)
        tally = _count(judged)
        tables.replace(stage.rejects(judged), f"{out}/rejects")
        _judge_source(tally, profile, settings.reject_limit, place)
        tables.replace(stage.ids(judged), f"{out}/ids")
        files = math.ceil(tally.points * profile.dim * 4 / POINTS_FILE_BYTES)
        tables.replace(stage.points(checked, judged, only, files), f"{out}/points")
        share = settings.mixed_space_sample_rows / tally.points
        return tally, _look_for_mixture(stage.sample(checked, only, share), profile.dim, out)


def open_cloud(spark: SparkSession, folder: str) -> PreparedCloud | None:
    """Read back what `prepare` wrote to a folder; None if there is no complete prepared cloud."""
    if not all(tables.is_delta(spark, f"{folder}/{name}") for name in ("statistics", *_TABLES)):
        return None
    row = tables.read(spark, f"{folder}/statistics").first()
    if row is None:
        return None
    fields = {name: row[name] for name in PreparedCloud.__dataclass_fields__ if name not in ("folder", "warnings")}
    return PreparedCloud(folder=folder, warnings=tuple(row["warnings"]), **fields)


def prepare_key(input_version: str, settings: PrepareSettings, encoder: str | None) -> str:
    """A name for the result: the same data, settings, encoder and version of veclink give the same tables."""
    parts = [input_version, settings.model_dump(mode="json"), encoder, __version__]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


@contextlib.contextmanager
def _scratch(spark: SparkSession, out: str) -> Iterator[Callable[[DataFrame, str], DataFrame]]:
    """A way to write rows down for as long as they are needed, so that every use sees the same ones."""
    folder = f"{out}/veclink-scratch"  # a name that nobody else gives: it is removed with all that is in it

    def keep(rows: DataFrame, schema: str) -> DataFrame:
        location = f"{folder}/{uuid.uuid4().hex}"
        tables.write_scratch(rows, location)
        return tables.read_scratch(spark, location, schema)

    tables.remove_scratch(spark, folder)  # left by a run that was killed
    try:
        yield keep
    finally:
        tables.remove_scratch(spark, folder)


def _agreed_encoder(
    stored: PreparedCloud | None, version: str, encoder: str | None, settings: PrepareSettings
) -> str | None:
    """The encoder's name for this input. Raises InputError if it was prepared under another."""
    if stored is None or stored.encoder is None or stored.input_version != version:
        return encoder
    if encoder is not None and encoder != stored.encoder:
        raise InputError(
            f"{stored.folder} holds the same input as encoder {stored.encoder}, and one table has one encoder",
            got=f"encoder {encoder}",
            do=f"Name it {stored.encoder}, or choose another output folder if the first name was wrong",
        )
    # Leaving the name out later does not take it away; a name that comes from the rows is found there again.
    return stored.encoder if settings.encoder_column is None else encoder


def _look(raw: DataFrame, settings: PrepareSettings, location: str, encoder: str | None) -> _Profile:
    """Which length and encoder to expect. Raises InputError if there is no row, or none of the named encoder."""
    groups = stage.profile(raw).collect()  # one row per encoder and length
    rows = sum(g["rows"] for g in groups)
    if rows == 0:
        raise InputError(f"{location} has 0 rows", do="Check the path or the query that fills the table")
    if settings.encoder_column is not None:
        names: Counter[str] = Counter()
        for g in groups:
            if g["encoder"] is not None:
                names[g["encoder"]] += g["rows"]
        if not names or (encoder is not None and encoder not in names):
            raise InputError(
                f"{location} has no row of encoder {encoder or '(any)'} in column {settings.encoder_column}",
                got=f"encoders {', '.join(sorted(names)[:10]) or 'null only'}",
                do="Give one of these names, or unset prepare.encoder_column",
            )
        encoder = encoder or max(names, key=lambda name: (names[name], name))
        groups = [g for g in groups if g["encoder"] == encoder]
    lengths: Counter[int] = Counter()
    for g in groups:
        lengths[g["length"] or 0] += g["rows"]
    lengths[0] = 0  # null and empty vectors have no say
    # With no vector at all the dimension is 0, every row gets its reason, and the reject limit ends the run.
    dim = settings.dim or max(lengths, key=lambda length: (lengths[length], length))
    return _Profile(rows, dim, encoder)


def _count(judged: DataFrame) -> _Tally:
    counts = {row["reason"]: row for row in stage.tally(judged).collect()}  # one row per reason
    accepted = counts.pop(None, None)
    rejected = {reason: counts[reason]["rows"] for reason in sorted(counts)}
    if accepted is None:
        return _Tally(0, 0, rejected, None)
    # Nine digits: the last ones of a float sum depend on the order in which Spark adds.
    mean = float(f"{accepted['norm_sum'] / accepted['rows']:.9g}")
    return _Tally(accepted["rows"], accepted["points"], rejected, (accepted["norm_min"], mean, accepted["norm_max"]))


def _judge_source(tally: _Tally, profile: _Profile, limit: float, place: _Place) -> None:
    """Raises InputError if too few rows are left to go on."""
    read = tally.kept + tally.rows_rejected
    if read != profile.rows:
        raise InputError(
            f"{place.location} changed while it was read",
            got=f"{profile.rows} rows, then {read}",
            do="Prepare it again when nobody writes to it, or from a Delta table, which can be pinned",
        )
    if tally.kept and tally.rows_rejected / read <= limit:
        return
    why = f"more than prepare.reject_limit {limit:g}" if tally.kept else "and none is left"
    repair = "Repair the source or raise prepare.reject_limit" if tally.kept else "Repair the source"
    raise InputError(
        f"{tally.rows_rejected} of {read} rows of {place.location} cannot be used ({profile.dim} dimensions), {why}",
        got=", ".join(f"{reason} {count}" for reason, count in tally.rejected.items()),
        do=f"Every row and its reason is in {place.out}/rejects. {repair}",
    )


def _look_for_mixture(sample: DataFrame, dim: int, out: str) -> tuple[str, ...]:
    """A warning if the sample looks like the output of two encoders."""
    chosen = sample.toArrow()  # about prepare.mixed_space_sample_rows rows
    digests = np.array(chosen.column("digest").to_pylist(), dtype=object)
    distinct = np.unique(digests, return_index=True)[1]  # sorted as well, whatever the order of the rows
    split = mixed_space.inspect(arrow_cols.matrix(chosen.column("vector"), dim)[distinct])
    if split is None or not split.suspect:
        return ()
    warning = (
        f"two encoders seem to be mixed in one table: {split.minority:.0%} of {len(distinct)} sampled vectors share "
        f"no directions with the rest; links of such a table mean nothing (see prepare.encoder_column)"
    )
    return (warning,)


def _write_statistics(spark: SparkSession, cloud: PreparedCloud, tally: _Tally) -> None:
    norm_min, norm_mean, norm_max = tally.norms or (None, None, None)
    row = {
        **{name: getattr(cloud, name) for name in PreparedCloud.__dataclass_fields__ if name != "folder"},
        "rows_read": cloud.rows_kept + cloud.rows_rejected,
        "norm_min": norm_min,
        "norm_mean": norm_mean,
        "norm_max": norm_max,
        "rejects_by_reason": tally.rejected,
        "warnings": list(cloud.warnings),
    }
    tables.replace(spark.createDataFrame([row], schemas.STATISTICS), f"{cloud.folder}/statistics")
