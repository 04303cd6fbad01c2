"""What the loops of a link run share: rounds until the anchors stand still, each kept in `iterations`."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from veclink import schemas, tables
from veclink.backends import Engine
from veclink.kernels.recovery import Recovery
from veclink.kernels.views import Anchors
from veclink.runs.progress import Progress
from veclink.runs.record import Record
from veclink.shards import Shard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Iteration:
    """One finished round, as it stands in the `iterations` table (schemas.ITERATIONS).

    sources: source rows that took part, all or some.
    recovery: share of the views without a promoted pair among their anchors that proposed it all the same; None where
    no view was without it. In a start of consensus, whose maps hold all there is: the share of a map's pairs that all
    maps agree on.
    """

    round: int
    sources: int
    views: int
    view_size: int
    anchors_before: int
    pairs_proposed: int
    threshold: float
    anchors: int
    recovery: float | None
    seconds: float


@dataclass(frozen=True)
class Answer:
    """What a loop ends with.

    promoted: pairs of points with their evidence, seeds not among them. estimates: what the confidences say of them as
    a whole; empty where they are no probabilities of being right.
    """

    promoted: pa.Table
    recovery: Recovery
    taken_off: bool
    estimates: dict[str, float | list[float] | None]


class Loop(ABC):
    """The state between rounds: the anchors and the history. It starts behind the last round that `out` holds."""

    _takeoff_settings: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        spark: SparkSession,
        out: str,
        record: Record,
        clouds: tuple[Shard, Shard],
        seeds: Anchors,
        engine: Engine,
    ) -> None:
        """Read what `out` holds of this run. seeds: anchors without promoted pairs."""
        self._spark, self._out, self._writer, self._clouds = spark, out, record.writer, clouds
        self._seeds, self._engine, self._settings = seeds, engine, record.settings
        self._link = record.settings.link
        # Seeds that were found wrong and dropped (columns of schemas.SEED_AUDIT).
        self.audit = pa.table({"seed": pa.array([], pa.int64())})
        self.anchors = seeds
        self._begin()
        self.history = self._stored()
        if self.history:
            self._resume()

    def run(self, progress: Progress) -> None:
        """Go on until the anchors stand still or the rounds are used up."""
        if self.history:
            progress.note(f"going on behind round {len(self.history)}: {len(self.anchors)} anchors")
        while not self._over():
            left = ""
            if len(self.history) > 1:  # the first round is not like the others
                rest = self._rounds_max - len(self.history)
                left = f", at most {rest * self.history[-1].seconds:.0f} s left"
            progress.step(f"round {len(self.history) + 1}: {self._outlook()}{left} ...")
            done = self._round(len(self.history) + 1)
            self._append("iterations", pa.Table.from_pylist([asdict(done)]), schemas.ITERATIONS)
            self.history.append(done)
            progress.note(_line(done))

    @property
    def settled(self) -> bool:
        """Whether the share of linked source points has stood still for `link.stop_rounds` rounds of the same rows."""
        quiet = self._link.stop_rounds
        sizes = [i.anchors / i.sources for i in self.history[-quiet - 1 :] if i.sources == self.history[-1].sources]
        changes = [abs(b - a) for a, b in itertools.pairwise(sizes)]
        return len(changes) == quiet and max(changes) < self._stop_change and len(self.history) >= self._rounds_min

    @property
    def stranded(self) -> bool:
        """Whether a round has left nothing to go on with."""
        return False

    @abstractmethod
    def answer(self) -> Answer:
        """The links of points, and whether they are better than chance. It costs some views."""

    @property
    def takeoff_limits(self) -> str:
        """The settings that decide whether a run took off, and their values."""
        return ", ".join(f"{name} = {attrgetter(name)(self._settings):g}" for name in self._takeoff_settings)

    @property
    @abstractmethod
    def _rounds_max(self) -> int: ...

    @property
    @abstractmethod
    def _rounds_min(self) -> int: ...

    @property
    @abstractmethod
    def _stop_change(self) -> float: ...

    @abstractmethod
    def _outlook(self) -> str:
        """What the next round will do, for the progress line."""

    @abstractmethod
    def _round(self, number: int) -> Iteration:
        """Do a round: commit its evidence, take its pairs as anchors, and say what it was."""

    def _begin(self) -> None:  # noqa: B027 a loop without more state has nothing to do
        """Set up what else a loop keeps between rounds."""

    @abstractmethod
    def _resume(self) -> None:
        """Bring the anchors back as the rounds in `history` left them."""

    def _over(self) -> bool:
        return self.settled or len(self.history) >= self._rounds_max

    def _stored(self) -> list[Iteration]:
        return stored_iterations(self._spark, self._out)

    def _append(self, name: str, rows: pa.Table, ddl: str) -> None:
        """Commit rows of the round that is under way; a retry adds nothing twice."""
        frame = self._spark.createDataFrame(rows).selectExpr(*schemas.casts(ddl))
        tables.append_once(frame, f"{self._out}/{name}", self._writer, len(self.history) + 1)

    def _take(self, rows: np.ndarray) -> None:
        """Make these pairs of rows, (p, 2), the promoted anchors."""
        seeds = self._seeds
        self.anchors = Anchors(seeds.seed_source, seeds.seed_target, seeds.seed_rows, rows)

    def _without_seeds(self, rows: np.ndarray) -> Anchors:
        """Pairs of rows alone as anchors."""
        empty = [np.empty((0, c.dim), np.float32) for c in self._clouds]
        return Anchors(empty[0], empty[1], np.empty((0, 2), np.int64), rows)


def stored_iterations(spark: SparkSession, out: str) -> list[Iteration]:
    """The finished rounds of a run, in order."""
    if not tables.is_delta(spark, f"{out}/iterations"):
        return []
    rows = tables.read(spark, f"{out}/iterations").toArrow().to_pylist()
    return sorted((Iteration(**r) for r in rows), key=lambda i: i.round)


def row_pairs(table: pa.Table) -> np.ndarray:
    """(p, 2) int64 row numbers of a table of pairs."""
    return np.stack([table[c].to_numpy() for c in schemas.ROWS], axis=1).reshape(-1, 2)


def _line(done: Iteration) -> str:
    recovery = "" if done.recovery is None else f", recovery {done.recovery:.2f}"
    return (
        f"round {done.round}: {done.views} views of {done.view_size} anchors, {done.pairs_proposed} pairs, "
        f"threshold {done.threshold:.2f}, {done.anchors} anchors{recovery}, {done.seconds:.1f} s"
    )
