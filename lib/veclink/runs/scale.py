"""How large clouds are linked: in cells instead of all rows with all, and first with a part of the source rows.

Up to link.tau_rows points nothing of this applies. Above it rounds compare in cells (stages/cell_search.py), and while
anchors grow only cells.growing_rows source rows take part; when anchors stand still all rows do, in cells.full_rounds
rounds, which the answer is made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from veclink.backends import Engine
from veclink.kernels.views import Anchors, RoundViews
from veclink.runs.loop import Iteration
from veclink.settings import Settings
from veclink.shards import Shard
from veclink.stages import propose as propose_stage
from veclink.stages.cell_search import CellOptions, CellSearch, Sources
from veclink.steps import step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Scale:
    """Which rows take part in a round, and how its views are compared."""

    def __init__(
        self, spark: SparkSession, clouds: tuple[Shard, Shard], settings: Settings, engine: Engine, out: str
    ) -> None:
        self._spark, self._clouds, self._engine = spark, clouds, engine
        self._settings, self._out = settings, out
        self._rows = clouds[0].rows

    @property
    def in_cells(self) -> bool:
        """Whether rows are compared in cells."""
        return max(c.rows for c in self._clouds) > self._settings.link.tau_rows

    @property
    def in_parts(self) -> bool:
        """Whether anchors grow on a part of the source rows first."""
        return self.in_cells and self._settings.cells.growing_rows < self._rows

    def sources(self, history: Sequence[Iteration], settled: bool, rounds_max: int) -> int:
        """Source rows that take part in the next round. settled: whether anchors stand still."""
        if not self.in_parts:
            return self._rows
        grown = settled or len(history) >= rounds_max - self._settings.cells.full_rounds
        return self._rows if self._full_rounds(history) or grown else self._settings.cells.growing_rows

    def over(self, history: Sequence[Iteration]) -> bool:
        """Whether all rows had their rounds."""
        return self._full_rounds(history) >= self._settings.cells.full_rounds

    def _full_rounds(self, history: Sequence[Iteration]) -> int:
        return sum(i.sources == self._rows for i in history)

    def candidates(self, sources: int, seeds: Anchors, anchors: Anchors, views: RoundViews) -> pa.Table:
        """What the views propose, summed by pair (columns schemas.CANDIDATES). seeds: they always take part."""
        if not self.in_cells:
            with step(self._spark, "propose"):
                return propose_stage.candidates(self._spark, self._clouds, anchors, views, self._engine).toArrow()
        how = self._settings.cells
        options = CellOptions(how.rows, how.probes, how.group_rows, how.sample_rows)
        search = CellSearch(self._spark, self._clouds, self._engine, options, f"{self._out}/veclink-scratch")
        taking_part = Sources(sources, (self._settings.link.random_seed, 0), seeds.seed_rows[:, 0])
        return search.candidates(taking_part, anchors, views)
