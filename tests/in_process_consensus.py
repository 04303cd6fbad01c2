"""The consensus loop in one process, without Spark or Delta: the package's own loop over views evaluated here."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from veclink import backends
from veclink.backends import Engine
from veclink.candidates import CANDIDATE_KEYS, CANDIDATE_SUMS
from veclink.kernels.csls import list_length
from veclink.kernels.views import Anchors
from veclink.runs.consensus import Consensus
from veclink.runs.progress import Quiet
from veclink.runs.record import RUNNING, Inputs, Record
from veclink.settings import Settings
from veclink.shards import Shard
from veclink.stages.propose import evaluate_view
from veclink.stages.seed_audit import ranks_in


class InProcess(Consensus):
    """source, target: unit rows. seeds: (s, 2) row pairs."""

    def __init__(self, source, target, seeds, settings: Settings, threads: int = 1) -> None:
        record = Record("key", "writer", RUNNING, Inputs("", "", {}, []), settings.model_dump_json(), {})
        engine = Engine(
            backends.choose(settings.link.backend),
            threads,
            list_length(settings.link.csls_k, len(source), len(target)),
            settings.link.bandwidth,
        )
        self._points = source, target
        anchors = Anchors(source[seeds[:, 0]], target[seeds[:, 1]], seeds, np.empty((0, 2), np.int64))
        shards = tuple(Shard((), len(c), c.shape[1]) for c in (source, target))
        super().__init__(None, "", record, shards, anchors, engine)  # type: ignore[arg-type]

    def _stored(self):
        return []

    def _append(self, name, rows, ddl):
        pass

    def _partner_ranks(self):
        seeds = self._seeds.seed_source, self._seeds.seed_target
        return ranks_in(self._points, self.anchors.rows, seeds, (self._how.ridge, self._how.width))

    def _candidates(self, anchors, views, sources):
        parts = [evaluate_view(self._points, anchors, views, i, self._engine) for i in range(len(views.views))]
        keys, sums = CANDIDATE_KEYS, CANDIDATE_SUMS
        table = pa.Table.from_batches(parts).group_by(list(keys)).aggregate([(c, "sum") for c in sums])
        table = table.rename_columns([c.removesuffix("_sum") for c in table.column_names])
        return table.sort_by([(c, "ascending") for c in keys])


def consensus_in_process(source, target, seeds, settings: Settings, threads: int = 1) -> InProcess:
    """The loop run to its end."""
    loop = InProcess(source, target, np.asarray(seeds).reshape(-1, 2), settings, threads)
    loop.run(Quiet())
    return loop
