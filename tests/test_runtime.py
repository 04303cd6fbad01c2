"""Java is found or asked for in one line, one process writes to a folder, workers are this environment's Python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from veclink import java, local_spark
from veclink.errors import InputError, RunLocked
from veclink.runtime import java_home, output_lock

LIB = str(Path(__file__).parents[1] / "lib")


def _script(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n", encoding="ascii")
    path.chmod(0o755)
    return path


def _fake_java(home: Path, version: str) -> Path:
    # Java prints its version on stderr.
    _script(home / "bin" / "java", f"echo 'openjdk version \"{version}\" 2025-01-01' >&2")
    return home


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java: an empty PATH, no JAVA_HOME, a project folder without .jdk."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    project = tmp_path / "project"
    project.mkdir()
    return project


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21), ("11.0.2", 11), ("1.8.0_402", 1)])
def test_java_major_reads_what_java_prints(tmp_path: Path, version: str, major: int) -> None:
    assert java.java_major(_fake_java(tmp_path, version)) == major


def test_java_that_is_missing_or_does_not_run_is_none(tmp_path: Path) -> None:
    assert java.java_major(tmp_path) is None
    broken = tmp_path / "bin" / "java"
    broken.parent.mkdir()
    broken.write_bytes(b"\x7fELF made for another machine")
    assert java.java_major(tmp_path) is None
    broken.chmod(0o755)
    assert java.java_major(tmp_path) is None


def test_java_home_prefers_the_variable_then_the_project_then_path(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = _fake_java(tmp_path / "system", "17.0.1")
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert java_home(bare) == on_path
    own = _fake_java(bare / ".jdk" / "jdk-21", "21.0.2")
    assert java_home(bare) == own
    named = _fake_java(tmp_path / "named", "17.0.9")
    monkeypatch.setenv("JAVA_HOME", str(named))
    assert java_home(bare) == named


def test_unsupported_java_is_passed_over(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path / "old", "11.0.2")))
    mac = _fake_java(bare / ".jdk" / "jdk-17" / "Contents" / "Home", "17.0.1")
    assert java_home(bare) == mac


def test_missing_java_is_one_line_with_what_to_do(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path / "old", "11.0.2")))
    with pytest.raises(InputError) as caught:
        java_home(bare)
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in ("17 or 21", "JAVA_HOME: Java 11", "install", "make java"))
    assert caught.value.exit_code == 2


def test_java_check_needs_the_standard_library_only(bare: Path) -> None:
    # Set-up runs it before anything is installed: -S and -I leave the site-packages away.
    code = f"import sys; sys.path.insert(0, {LIB!r}); from veclink.java import main; sys.exit(main(['check', '.']))"
    command = [sys.executable, "-S", "-I", "-c", code]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=bare)
    assert answer.returncode == 2
    assert answer.stderr.startswith("Spark needs Java 17 or 21")
    assert answer.stderr.count("\n") == 1


def _holder(out: Path) -> subprocess.Popen[str]:
    """Another process that holds the lock until it is told to let go."""
    code = (
        f"import sys; sys.path.insert(0, {LIB!r})\n"
        f"from veclink.runtime import output_lock\n"
        f"with output_lock({str(out)!r}):\n    print('held', flush=True)\n    sys.stdin.read()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_second_writer_is_refused_and_told_who_holds_the_folder(tmp_path: Path) -> None:
    with _holder(tmp_path) as holder:
        with pytest.raises(RunLocked, match=f"process {holder.pid}") as caught, output_lock(str(tmp_path)):
            raise AssertionError("two writers at once")
        assert caught.value.exit_code == 5
        holder.communicate()
    with output_lock(str(tmp_path)):
        assert (tmp_path / ".lock").read_text(encoding="ascii") == str(os.getpid())


def test_lock_is_freed_when_its_holder_is_killed(tmp_path: Path) -> None:
    with _holder(tmp_path) as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with output_lock(str(tmp_path)):
        assert (tmp_path / ".lock").is_file()


@pytest.mark.parametrize("inside", ["_delta_log/0.json", "part-0.parquet"])
def test_a_table_is_no_output_folder(tmp_path: Path, inside: str) -> None:
    (tmp_path / inside).parent.mkdir(exist_ok=True)
    (tmp_path / inside).touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match="is a table"), output_lock(str(tmp_path)):
        raise AssertionError("a table was taken")
    assert sorted(tmp_path.rglob("*")) == before


def test_object_stores_are_not_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with output_lock("s3a://bucket/out"):
        assert list(tmp_path.iterdir()) == []


@pytest.fixture
def jar_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_jars_are_remembered_only_while_all_of_them_are_there(jar_cache: Path) -> None:
    assert local_spark._cached_delta_jars() == []
    jars = [jar_cache / "a.jar", jar_cache / "b.jar"]
    for jar in jars:
        jar.touch()
    local_spark._record_delta_jars(",".join(f"file://{jar}" for jar in jars))
    assert local_spark._cached_delta_jars() == [str(jar) for jar in jars]
    jars[1].unlink()
    assert local_spark._cached_delta_jars() == []


def test_jars_of_another_delta_are_not_taken(jar_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = jar_cache / "a.jar"
    jar.touch()
    local_spark._record_delta_jars(f"file://{jar}")
    monkeypatch.setattr(local_spark, "_delta_package", lambda: "io.delta:delta-spark_4.9_2.13:9.9.9")
    assert local_spark._cached_delta_jars() == []


def test_delta_package_carries_the_spark_version() -> None:
    assert local_spark._delta_package().startswith("io.delta:delta-spark_4.")


_PROBE = """
import sys
from veclink.runtime import session
from veclink.settings import SparkSettings

def interpreter(batches):
    import pandas as pd
    for batch in batches:
        yield pd.DataFrame({"python": [sys.executable]})

if __name__ == "__main__":
    spark = session(SparkSettings(master="local[1]", driver_memory="1g"))
    print(spark.range(1).mapInPandas(interpreter, "python string").first()[0])
    spark.stop()
"""


def test_local_session_is_quiet_and_uses_this_interpreter_whatever_path_says(tmp_path: Path) -> None:
    fake = _script(tmp_path / "bin" / "python3", "echo 'the wrong python3' >&2", "exit 1").parent
    probe = tmp_path / "probe.py"
    probe.write_text(_PROBE, encoding="utf-8")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "SPARK_"))}
    env |= {"PATH": f"{fake}:{env['PATH']}", "JAVA_HOME": str(java_home()), "SPARK_HOME": str(tmp_path)}
    env["PYTHONPATH"] = LIB
    # The first start of all fetches Delta's jars and says so; the probe's must be a later one.
    subprocess.run([sys.executable, "-m", "veclink.local_spark"], check=True, env=env)
    answer = subprocess.run([sys.executable, str(probe)], capture_output=True, text=True, check=False, env=env)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == f"{sys.executable}\n"
    assert answer.stderr == ""
