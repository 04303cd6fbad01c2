"""Opening a run: what is asked, what names it, and its clouds and seeds, checked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from veclink import tables
from veclink.errors import InputError
from veclink.runs import seeds as seed_reader
from veclink.runs.prepare import PreparedCloud, open_cloud, prepare
from veclink.runs.progress import Progress
from veclink.runs.record import Inputs
from veclink.settings import CONSENSUS, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIDES = ("source", "target")


@dataclass(frozen=True)
class LinkRequest:
    """What to link. Locations are paths or catalog names; the folder of a prepared cloud is taken as it is.

    seeds: table of id pairs. anchors: two tables of anchor vectors paired by id. One of the two is given, or
    neither with `consensus.start: unpaired`.
    encoders: names stamped on the clouds. overwrite: another run's tables in `out` may be replaced.
    """

    source: str
    target: str
    out: str
    seeds: str | None = None
    anchors: tuple[str, str] | None = None
    encoders: tuple[str | None, str | None] = (None, None)
    overwrite: bool = False

    def resolved(self) -> LinkRequest:
        """The same request with local paths made absolute."""
        at = tables.resolve
        anchors = None if self.anchors is None else (at(self.anchors[0]), at(self.anchors[1]))
        seeds = None if self.seeds is None else at(self.seeds)
        source, target, out = at(self.source), at(self.target), tables.resolve_folder(self.out)
        return replace(self, source=source, target=target, out=out, seeds=seeds, anchors=anchors)


class Opening:
    """The first steps of a run: `inputs`, then `clouds`, then `seeds`."""

    def __init__(self, spark: SparkSession, request: LinkRequest, settings: Settings, progress: Progress) -> None:
        """Check the request and read its seed pairs. Raises InputError."""
        self._spark, self._request, self._settings, self._progress = spark, request, settings, progress
        self._check()
        self._pairs = None if request.seeds is None else seed_reader.read_pairs(spark, request.seeds, "seeds")

    def _check(self) -> None:
        request = self._request
        given = (request.seeds is not None) + (request.anchors is not None)
        link, start = self._settings.link, self._settings.consensus.start
        unpaired = link.preset == CONSENSUS and start == "unpaired"
        if given > 1 or (given == 0 and not unpaired):
            raise InputError(
                "a run starts from seeds or from two anchor tables",
                do="Give exactly one of the two, or neither with consensus.start=unpaired",
            )
        if request.source == request.target:
            raise InputError("source and target are the same table", got=request.source, do="Give two clouds")
        for location in (request.source, request.target, request.seeds, *(request.anchors or ())):
            if location is not None and tables.overlap(location, request.out):
                raise InputError(
                    "the output folder must be apart from the inputs, which are never changed",
                    got=f"input {location}, output {request.out}",
                )

    def inputs(self) -> Inputs:
        """What names this run, from versions alone: nothing is prepared or written yet."""
        request = self._request
        folders, versions = [], {}
        for side, location in zip(SIDES, (request.source, request.target), strict=True):
            cloud = self._prepared(location)
            folders.append(location if cloud else side)
            versions[side] = cloud.prepare_key if cloud else tables.read_input(self._spark, location).version
        if versions["source"] == versions["target"]:
            raise InputError("source and target are the same table", got=request.source, do="Give two clouds")
        if self._pairs is not None:
            versions["seeds"] = seed_reader.digest(self._pairs)
        for side, location in zip(SIDES, request.anchors or (), strict=False):
            versions[f"anchor_{side}"] = tables.read_input(self._spark, location).version
        return Inputs(folders[0], folders[1], versions, [])

    def _prepared(self, location: str) -> PreparedCloud | None:
        return open_cloud(self._spark, location) if tables.is_path(location) else None

    def clouds(self) -> tuple[PreparedCloud, PreparedCloud]:
        """Both clouds, prepared under the output folder unless they were before."""
        request, link = self._request, self._settings.link
        source = self._cloud(request.source, "source", request.encoders[0])
        target = self._cloud(request.target, "target", request.encoders[1])
        if source.encoder is not None and source.encoder == target.encoder and source.dim != target.dim:
            raise InputError(
                f"both clouds are said to come from encoder {source.encoder}",
                got=f"dimensions {source.dim} and {target.dim}",
                do="Name the encoders apart",
            )
        largest = max(source.points, target.points)
        in_cells = link.preset == CONSENSUS and self._settings.consensus.view_kind != "hash"
        if largest > link.tau_rows and not in_cells:
            raise InputError(
                f"clouds above link.tau_rows = {link.tau_rows} points cannot be matched all with all",
                got=f"{largest} points",
                do="Take preset consensus with consensus.view_kind cca or ridge, which compares in cells, link a part "
                "of them, or raise link.tau_rows if the executors can bear it",
            )
        self._both = source, target
        return source, target

    def _cloud(self, location: str, side: str, encoder: str | None) -> PreparedCloud:
        self._progress.step(f"preparing {side}: {location} ...")
        cloud = self._prepared(location)
        if cloud is not None:
            self._check_prepared(cloud, encoder)
        else:
            cloud = prepare(self._spark, location, f"{self._request.out}/{side}", self._settings, encoder)
        self._progress.note(
            f"{side}: {cloud.rows_kept} vectors of dimension {cloud.dim}, {cloud.rows_rejected} rejected, "
            f"{cloud.duplicate_rows} exact duplicates"
        )
        for warning in cloud.warnings:
            self._progress.note(f"warning: {side}: {warning}")
        return cloud

    def _check_prepared(self, cloud: PreparedCloud, encoder: str | None) -> None:
        dim = self._settings.prepare.dim
        if (encoder is not None and encoder != cloud.encoder) or dim not in (None, cloud.dim):
            raise InputError(
                f"{cloud.folder} was prepared as encoder {cloud.encoder}, dimension {cloud.dim}",
                got=f"encoder {encoder}, prepare.dim {dim}",
                do="Leave these options out for a prepared cloud, or prepare it again",
            )

    def seeds(self) -> seed_reader.Seeds:
        """The seeds, checked against the clouds, which have been opened before."""
        link = self._settings.link
        if self._pairs is not None:
            seeds = seed_reader.from_pairs(self._spark, self._pairs, self._both, link)
        elif self._request.anchors is None:
            seeds = seed_reader.nothing([c.dim for c in self._both])
        else:
            seeds = seed_reader.from_vectors(self._spark, self._anchor_clouds(), link)
        for warning in seeds.warnings:
            self._progress.note(f"warning: {warning}")
        return seeds

    def _anchor_clouds(self) -> tuple[PreparedCloud, PreparedCloud]:
        request = self._request
        assert request.anchors is not None  # _check has seen to it
        source = self._cloud(request.anchors[0], "anchor_source", request.encoders[0])
        target = self._cloud(request.anchors[1], "anchor_target", request.encoders[1])
        for side, anchors, cloud in zip(SIDES, (source, target), self._both, strict=True):
            if anchors.dim != cloud.dim:
                raise InputError(
                    f"{side} anchors and the {side} cloud must come from one encoder",
                    got=f"dimensions {anchors.dim} and {cloud.dim}",
                )
        return source, target
