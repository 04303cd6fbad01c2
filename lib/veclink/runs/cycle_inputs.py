"""Opening finished link runs: which clouds they join, so that runs over the same cloud meet."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from veclink.errors import InputError
from veclink.runs import record as records
from veclink.runs.prepare import PreparedCloud, open_cloud

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class LinkRun:
    """A finished link run. clouds: as prepared, source first. numbers: of the clouds, once they are numbered."""

    folder: str
    run_key: str
    writer: str
    clouds: tuple[PreparedCloud, PreparedCloud]
    numbers: tuple[int, int] = (0, 0)

    @property
    def pair(self) -> tuple[int, int]:
        """The numbers of the two clouds, the lower one first."""
        low, high = sorted(self.numbers)
        return low, high


def open_runs(spark: SparkSession, folders: Sequence[str]) -> tuple[list[str], list[LinkRun]]:
    """Finished link runs as `numbered` returns them. Raises InputError, also if a folder holds no finished link run."""
    if len(folders) < 3:
        raise InputError(
            "cycles need at least three link runs", got=len(folders), do="Give --links three times or more"
        )
    return numbered([_open(spark, folder) for folder in folders])


def numbered(runs: Sequence[LinkRun]) -> tuple[list[str], list[LinkRun]]:
    """The names of the clouds in order, and the runs, their clouds numbered, in the order of their pairs of clouds.

    A cloud is its prepared tables (`prepare_key`), wherever they lie, and is named by its input. Raises InputError if a
    cloud was prepared in two ways, if two runs join the same clouds, or if no three clouds are joined by three runs.
    """
    clouds = [cloud for run in runs for cloud in run.clouds]
    _check_one_way(clouds)
    names = {c.prepare_key: min(_name(o) for o in clouds if o.prepare_key == c.prepare_key) for c in clouds}
    order = sorted(names, key=lambda key: (names[key], key))
    numbers = {key: number for number, key in enumerate(order)}
    placed = [replace(r, numbers=(numbers[r.clouds[0].prepare_key], numbers[r.clouds[1].prepare_key])) for r in runs]
    placed.sort(key=lambda run: run.pair)
    named = [names[key] for key in order]
    for one, other in itertools.pairwise(placed):
        if one.pair == other.pair:
            raise InputError(
                f"two link runs join {named[one.pair[0]]} and {named[one.pair[1]]}",
                got=f"{one.folder} and {other.folder}",
                do="Leave one of them out",
            )
    if not triangles([run.pair for run in placed]):
        joined = "; ".join(f"{named[a]} and {named[b]}" for a, b in (run.pair for run in placed))
        raise InputError(
            "no three clouds are linked each with each", got=joined, do="Link the missing pair, and give that run too"
        )
    return named, placed


def triangles(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Positions, among ordered pairs of clouds, of the pairs a - b, a - c and b - c of any three clouds."""
    place = {pair: i for i, pair in enumerate(pairs)}
    clouds = sorted({cloud for pair in pairs for cloud in pair})
    return [
        (place[a, b], place[a, c], place[b, c])
        for a, b, c in itertools.combinations(clouds, 3)
        if {(a, b), (a, c), (b, c)} <= place.keys()
    ]


def _open(spark: SparkSession, folder: str) -> LinkRun:
    record = records.read(spark, folder)
    if record is None or not record.inputs.source:
        raise InputError(f"{folder} holds no link run", got="nothing" if record is None else "the result of cycles",
                         do="Give the output folder of `veclink link`")  # fmt: skip
    if record.status == records.NOT_TAKEN_OFF:
        raise InputError(
            f"the link run in {folder} did not take off and has no links",
            got=f"status {record.status}",
            do="Leave it out, or link again with more seeds",
        )
    if record.status != records.DONE:
        raise InputError(
            f"the link run in {folder} has not ended", got=f"status {record.status}", do="Run `veclink link` to its end"
        )
    clouds = []
    for place in records.cloud_folders(folder, record):
        cloud = open_cloud(spark, place)
        if cloud is None:
            raise InputError(
                f"a prepared cloud of the link run in {folder} is gone", got=place, do="Prepare it again at that place"
            )
        clouds.append(cloud)
    return LinkRun(folder, record.run_key, record.writer, (clouds[0], clouds[1]))


def _check_one_way(clouds: Sequence[PreparedCloud]) -> None:
    """Raises InputError if one input was prepared in two ways: its points would not be the same in both."""
    for one, other in itertools.combinations(clouds, 2):
        if one.prepare_key == other.prepare_key:
            continue
        same = one.input == other.input or one.input_version == other.input_version
        # One table can hold several encoders, which are clouds of their own.
        apart = None not in (one.encoder, other.encoder) and one.encoder != other.encoder
        if same and not apart:
            raise InputError(
                f"{one.input} was prepared in two ways (other version, settings or name of the encoder)",
                got=f"{one.folder} and {other.folder}",
                do="Prepare it once with `veclink prepare`, and link that folder in all runs",
            )


def _name(cloud: PreparedCloud) -> str:
    return cloud.input if cloud.encoder is None else f"{cloud.input} ({cloud.encoder})"
