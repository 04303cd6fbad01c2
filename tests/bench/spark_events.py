"""What a run's steps cost, from Spark's own event log."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veclink.steps import PREFIX

REST = "rest"
_TAG = re.compile(rf"{PREFIX}([a-z_]+)(?:,|$)")
# spark-defaults.conf of a run whose events are wanted.
DEFAULTS = """spark.eventLog.enabled true
spark.eventLog.dir file://{folder}
spark.eventLog.compress false
spark.eventLog.rolling.enabled false
"""


@dataclass
class Cost:
    """seconds: from the submission of a step's jobs to their ends. task_seconds: sum over tasks. The rest in bytes."""

    seconds: float = 0.0
    task_seconds: float = 0.0
    shuffled: int = 0
    read: int = 0
    written: int = 0
    to_driver: int = 0


def costs(folder: Path) -> dict[str, Cost]:
    """The cost of every step in the only event log of a folder; what has no name is `rest`."""
    [log] = folder.iterdir()
    by_step: dict[str, Cost] = defaultdict(Cost)
    begun: dict[int, tuple[str, int]] = {}
    step_of_stage: dict[int, str] = {}
    with log.open(encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            kind = event["Event"]
            if kind == "SparkListenerJobStart":
                named = _TAG.findall((event.get("Properties") or {}).get("spark.job.tags") or "")
                name = named[0] if named else REST
                begun[event["Job ID"]] = name, event["Submission Time"]
                for stage in event["Stage IDs"]:
                    step_of_stage.setdefault(stage, name)
            elif kind == "SparkListenerJobEnd":
                name, since = begun.pop(event["Job ID"])
                by_step[name].seconds += (event["Completion Time"] - since) / 1e3
            elif kind == "SparkListenerTaskEnd" and event.get("Task Metrics"):
                _add(by_step[step_of_stage[event["Stage ID"]]], event["Task Metrics"])
    return dict(by_step)


def _add(cost: Cost, metrics: dict[str, Any]) -> None:
    cost.task_seconds += metrics["Executor Run Time"] / 1e3
    cost.shuffled += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
    cost.read += metrics["Input Metrics"]["Bytes Read"]
    cost.written += metrics["Output Metrics"]["Bytes Written"]
    cost.to_driver += metrics["Result Size"]
