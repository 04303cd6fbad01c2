"""Benchmarks keep what they measured beside the environment they ran in: tests/bench/results/NAME.json."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

from veclink.runs.record import environment

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """Processor, cores and library versions."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
    return {"processor": model, "cores": os.cpu_count(), **environment()}


def stored(name: str) -> list[Any]:
    """The figures of an earlier run of one benchmark, where they are a list; nothing if there was none."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text())["figures"] if path.exists() else []


def keep(name: str, figures: Any) -> None:
    """Write the figures of one benchmark."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"environment": machine(), "figures": figures}, indent=1)
    (RESULTS / f"{name}.json").write_text(text + "\n")
