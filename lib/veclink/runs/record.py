"""The record of a link run: its key, its state in the `run` table, and starting afresh."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import uuid
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import ValidationError

from veclink import __version__, schemas, tables
from veclink.errors import InputError
from veclink.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# clearing: what an older run left is being removed; until that is done nothing in the folder counts.
CLEARING, RUNNING, DONE, NOT_TAKEN_OFF = "clearing", "running", "done", "not_taken_off"


@dataclass(frozen=True)
class Inputs:
    """What a run works on.

    source, target: folders of the prepared clouds, a bare name where they lie in the output folder. versions: versions
    of the inputs, digest of the seeds. seed_rows: row pairs of the seeds that lie in the clouds, once they are known.
    """

    source: str
    target: str
    versions: dict[str, str]
    seed_rows: list[list[int]]


@dataclass(frozen=True)
class Record:
    """The one row of `out/run`. writer: new for every fresh start, so that Delta never takes it for an older one.

    settings_json: all settings of the run, perhaps of a version that had others than ours.
    """

    run_key: str
    writer: str
    status: str
    inputs: Inputs
    settings_json: str
    report: dict[str, Any]

    @property
    def settings(self) -> Settings:
        """The settings of the run. Raises InputError if this version does not know them."""
        try:
            return Settings.model_validate_json(self.settings_json)
        except ValidationError as error:
            raise InputError(
                f"run {self.run_key} was made by a version of veclink with other settings",
                got=f"{error.errors()[0]['loc']}: {error.errors()[0]['msg']}",
                do="Use that version, or run again with --overwrite",
            ) from None


def run_key(inputs: Inputs, settings: Settings) -> str:
    """Hash of everything that can change the links: input versions, seeds, settings of the work, code version."""
    parts: dict[str, Any] = {"inputs": inputs.versions, "link": settings.link.model_dump()}
    parts |= {name: getattr(settings, name).model_dump() for name in ("consensus", "prepare")}
    parts["version"] = __version__
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def read(spark: SparkSession, out: str) -> Record | None:
    """The record in an output folder, None if there is none."""
    if not tables.is_delta(spark, f"{out}/run"):
        return None
    row = tables.read(spark, f"{out}/run").toArrow().to_pylist()[0]
    return Record(
        run_key=row["run_key"],
        writer=row["writer"],
        status=row["status"],
        inputs=Inputs(**json.loads(row["inputs"])),
        settings_json=row["settings"],
        report=json.loads(row["report"]),
    )


def write(spark: SparkSession, out: str, record: Record) -> None:
    """Write the record as the whole content of `out/run`."""
    row = {
        "run_key": record.run_key,
        "writer": record.writer,
        "status": record.status,
        "report": json.dumps(record.report),
        "inputs": json.dumps(asdict(record.inputs)),
        "settings": record.settings_json,
        "environment": json.dumps(environment()),
    }
    tables.replace(spark.createDataFrame(pa.Table.from_pylist([row]), schemas.RUN), f"{out}/run")


def claim(spark: SparkSession, out: str, key: str, overwrite: bool) -> Record | None:
    """The record of the run with this key if the folder holds it, finished or not; None if the folder is free for it.

    A folder that holds another run is refused with InputError before anything in it is touched. To overwrite, it is
    marked first and cleared then, so that a crash in between leaves no mixture of two runs.
    """
    stored = read(spark, out)
    if stored is None:
        return None
    if stored.run_key == key and stored.status != CLEARING:
        return stored
    if stored.status != CLEARING and not overwrite:
        raise InputError(
            f"{out} holds another run",
            got=f"run {stored.run_key}, this one is {key} (other inputs, seeds, settings or version)",
            do="Choose another --out, or pass --overwrite",
        )
    write(spark, out, replace(stored, status=CLEARING))
    for name in ("evidence", "judged", "seed_audit", "iterations", "links", "suggested", "groups"):
        tables.clear(spark, f"{out}/{name}")
    return None


def cloud_folders(out: str, record: Record) -> tuple[str, str]:
    """Folders of the prepared source and target of the link run in a folder, which may have been moved."""
    source, target = (f if "/" in f else f"{out}/{f}" for f in (record.inputs.source, record.inputs.target))
    return source, target


def start(spark: SparkSession, out: str, inputs: Inputs, settings: Settings) -> Record:
    """A fresh record in a free folder."""
    fresh = Record(run_key(inputs, settings), uuid.uuid4().hex, RUNNING, inputs, settings.model_dump_json(), {})
    write(spark, out, fresh)
    return fresh


def environment() -> dict[str, str]:
    """Versions that a repeated run would need."""
    found = {"python": platform.python_version(), "veclink": __version__, "machine": platform.machine()}
    for name in ("numpy", "pyarrow", "pyspark", "delta-spark", "faiss-cpu"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
