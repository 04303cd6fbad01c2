"""The embedded Spark session of one machine: this environment's Python, Delta's jars, a quiet start.

`python -m veclink.local_spark` fetches Delta's jars unless they are cached; set-up does it once.
"""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import os
import re
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from veclink.errors import InputError, VeclinkError
from veclink.java import java_home
from veclink.settings import SparkSettings

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

_LOCAL = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The tables in the loop are small: planning and compiling a query costs more than running it.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.stats.collect": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    "spark.databricks.delta.snapshotPartitions": "1",
}
# Small heaps and two cores: no threads for collecting garbage beside the workers, which do the arithmetic.
_JAVA_OPTIONS = "-XX:+UseSerialGC"


def local_session(settings: SparkSettings, app: str) -> SparkSession:
    """Start a local session with Delta.

    Raises InputError if no supported Java is found, or if Delta's jars are needed and cannot be fetched.
    """
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    _set_environment()
    log4j = importlib.resources.files("veclink").joinpath("log4j2.properties")
    conf = SparkConf().setAppName(app).setMaster(settings.master).setAll(list(_LOCAL.items()))
    conf.set("spark.driver.memory", settings.driver_memory)
    conf.set("spark.driver.extraJavaOptions", f"{_JAVA_OPTIONS} -Dlog4j2.configurationFile={Path(str(log4j)).as_uri()}")
    jars = _cached_delta_jars()
    if jars:
        conf.set("spark.jars", ",".join(jars))
    else:
        conf.set("spark.jars.packages", _delta_package())
        print("Fetching Delta's jars, once (85 MB) ...", file=sys.stderr)
    _start_jvm(conf, fetching=not jars)
    running = SparkSession.builder.config(conf=conf).getOrCreate()
    if not jars:
        _record_delta_jars(running.conf.get("spark.jars") or "")
    return running


def _set_environment() -> None:
    import pyspark

    os.environ["JAVA_HOME"] = str(java_home())
    # This environment's Spark and interpreter, also in the workers, whatever SPARK_HOME and PATH say.
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # faiss threads that spin while they wait starve the neighbouring task.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def _start_jvm(conf: SparkConf, *, fetching: bool) -> None:
    """Start Spark's JVM with both its outputs on our stderr, without the chatter of its start."""
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return  # a JVM outlives its sessions and serves the next one
    output = _JvmOutput()
    try:
        # Our own stdout belongs to the program: scripts parse it.
        both = {"stdout": output.write_end, "stderr": output.write_end}
        gateway = launch_gateway(conf, popen_kwargs=both)  # type: ignore[no-untyped-call]
    except PySparkException as error:
        lines = output.end_of_start(failed=True)
        refused = re.search(r"unresolved dependency: [^\]\n]+", "".join(lines))
        if fetching and refused:
            raise InputError(
                "Delta's jars could not be fetched from a Maven repository",
                got=refused.group(),
                do="Connect to the network for the first start, or tell the JVM its proxy",
            ) from None
        sys.stderr.write("".join(lines))
        raise InputError("Spark's Java process did not start", got=str(error)) from None
    output.end_of_start(failed=False, drop_all=fetching)
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


class _JvmOutput:
    """A pipe that keeps what the JVM says while it starts, and passes on what it says later."""

    def __init__(self) -> None:
        read_end, self.write_end = os.pipe()
        self._held: list[str] | None = []
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, args=(read_end,), name="jvm-output", daemon=True)
        self._reader.start()

    def _read(self, read_end: int) -> None:
        with open(read_end, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                with self._lock:
                    if self._held is not None:
                        self._held.append(line)
                        continue
                sys.stderr.write(line)

    def end_of_start(self, *, failed: bool, drop_all: bool = False) -> list[str]:
        """Return what was held; unless the start failed, pass it on without the lines that every start prints."""
        os.close(self.write_end)
        if failed:
            self._reader.join(timeout=10)  # the JVM is gone: read to the end
        with self._lock:
            held, self._held = self._held or [], None
        if not failed and not drop_all:
            # Spark adds this module itself, and Java has no option that hides the warning.
            sys.stderr.write("".join(line for line in held if "Using incubator modules" not in line))
        return held


def _delta_package() -> str:
    # The name carries Spark's version: the one without a suffix means the newest Spark.
    spark = ".".join(importlib.metadata.version("pyspark").split(".")[:2])
    return f"io.delta:delta-spark_{spark}_2.13:{importlib.metadata.version('delta-spark')}"


def _jar_list() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "veclink" / f"jars-{_delta_package().replace(':', '-')}.txt"


def _cached_delta_jars() -> list[str]:
    """Delta's jars where an earlier start has fetched them: a second start then needs no network."""
    try:
        jars = _jar_list().read_text(encoding="utf-8").split("\n")
    except OSError:
        return []
    # Somebody may have emptied Ivy's folder since.
    return jars if all(Path(jar).is_file() for jar in jars) else []


def _record_delta_jars(jars: str) -> None:
    paths = [jar.removeprefix("file://") for jar in jars.split(",") if jar]
    file = _jar_list()
    temporary = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text("\n".join(paths), encoding="utf-8")
        temporary.replace(file)  # another start may be reading it
    except OSError as error:
        print(f"Delta's jars are not remembered: {file}: {error.strerror}", file=sys.stderr)


def main() -> int:
    """Start a session and stop it again, unless Delta's jars are there already."""
    if _cached_delta_jars():
        return 0
    try:
        local_session(SparkSettings(master="local[1]", driver_memory="1g"), "veclink-setup").stop()
    except VeclinkError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
