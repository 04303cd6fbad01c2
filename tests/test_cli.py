"""The command line as scripts use it: options, streams, exit codes; a part of the real sample end to end.

What a process of its own matters for runs in one; the rest calls the same entry with the suite's Spark session.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from veclink.cli import main
from veclink.runtime import output_lock

ROOT = Path(__file__).parents[1]
SAMPLE = Path(__file__).parent / "data" / "sample"
FILES = ["--source", str(SAMPLE / "source.parquet"), "--target", str(SAMPLE / "target.parquet")]


def veclink(*arguments: str, entry: tuple[str, ...] = ("-m", "veclink.cli")) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *entry, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=590, check=False)


@pytest.fixture
def called(spark, capfd):
    """Call the command in this process: exit code, standard output, standard error."""

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        return ended.value.code, *capfd.readouterr()

    return call


def a_part(folder: Path) -> list[str]:
    """The seeds, 300 more true pairs and 400 objects of either side alone, as --source, --target and --truth."""
    truth, seeds = (
        [tuple(line.split(",")) for line in (SAMPLE / f"{name}.csv").read_text().split()] for name in ("truth", "seeds")
    )
    kept = [*seeds, *[pair for pair in truth[1:] if pair not in seeds][:300]]
    for side, name in enumerate(("source", "target")):
        rows = pq.read_table(SAMPLE / f"{name}.parquet")
        shared = {pair[side] for pair in truth}
        alone = [i for i in rows["id"].to_pylist() if i not in shared][:400]
        wanted = pa.array(sorted({pair[side] for pair in kept} | set(alone)))
        pq.write_table(rows.filter(pc.is_in(rows["id"], wanted)), folder / f"{name}.parquet")
    (folder / "truth.csv").write_text("".join(f"{a},{b}\n" for a, b in kept))  # the first is the head of seeds.csv
    return [x for name in ("source", "target") for x in (f"--{name}", str(folder / f"{name}.parquet"))]


@pytest.fixture(scope="module")
def sample_run(tmp_path_factory):
    """Output folder, the finished process, and the truth."""
    folder = tmp_path_factory.mktemp("sample")
    # One quiet round, half the views and a fifth of the rows are enough here; the demo has all.
    quick = [x for s in ("link.stop_rounds=1", "consensus.window=2", "consensus.views=4") for x in ("--set", s)]
    files = [*a_part(folder), "--seeds", str(SAMPLE / "seeds.csv")]
    done = veclink("link", *files, "--out", str(folder / "out"), "--json", *quick)
    assert done.returncode == 0, done.stderr[-3000:]
    return str(folder / "out"), done, folder / "truth.csv"


def test_the_real_sample_is_linked_well(sample_run):
    out, done, file = sample_run
    report = json.loads(done.stdout.splitlines()[-1])
    links = [r for r in DeltaTable(f"{out}/links").to_pyarrow_table().to_pylist() if not r["is_seed"]]
    truth = dict(line.split(",") for line in file.read_text().split()[1:])
    right = sum(truth.get(r["source_id"]) == r["target_id"] for r in links)
    assert report["links"] == len(links)
    assert right / len(links) > 0.9
    assert right / (len(truth) - 15) > 0.92
    assert abs(report["estimates"]["precision"] - right / len(links)) < 0.05
    assert {"run_key", "exit_reason", "seconds", "estimates", "rounds"} <= set(report)


def test_progress_goes_to_standard_error_and_only_the_result_to_standard_output(sample_run):
    done = sample_run[1]
    assert len(done.stdout.splitlines()) == 1
    assert "round 1: 2 views of 15 anchors" in done.stderr
    assert "WARN" not in done.stderr


def test_measure_prints_the_figures(sample_run, called):
    code, printed, _ = called("measure", "--links", sample_run[0], "--truth", str(sample_run[2]), "--json")
    assert code == 0
    found = json.loads(printed.splitlines()[-1])
    assert found["f1"] > 0.92
    assert found["calibration_error"] < 0.05
    assert len(found["rounds"]) > 3


def test_diagnose_says_first_what_it_expects(sample_run, tmp_path, called):
    clouds = ["--source", f"{sample_run[0]}/source", "--target", f"{sample_run[0]}/target"]
    code, printed, _ = called("diagnose", *clouds, "--seeds", str(SAMPLE / "seeds.csv"), "--out", str(tmp_path))
    assert code == 0
    assert printed.splitlines()[0] == "verdict: expected"
    assert "rank 15 of 384 (source)" in printed
    assert [p.name for p in tmp_path.glob("[!.]*")] == ["diagnose.html"]


def test_a_missing_input_ends_with_two_and_one_line(tmp_path, called):
    code, printed, told = called(
        "link", "--source", "nowhere.parquet", "--target", FILES[3], "--seeds", str(SAMPLE / "seeds.csv"), "--out",
        str(tmp_path),
    )  # fmt: skip
    assert (code, printed) == (2, "")
    assert told.splitlines()[-1].startswith("veclink: ")
    assert "nowhere.parquet" in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "link.csl_k=3"], "Did you mean link.csls_k?"),
        (["--set", "link.csls_k=0"], "greater than or equal to 1"),
        (["--set", "link.csls_k"], "--set needs key=value"),
        (["--preset", "magic"], "preset must be one of"),
        (["--config", "nowhere.yml"], "nowhere.yml cannot be read"),
    ],
)
def test_bad_settings_end_with_two_before_spark_starts(tmp_path, arguments, said):
    done = veclink("link", *FILES, "--seeds", str(SAMPLE / "seeds.csv"), "--out", str(tmp_path), *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert not list(tmp_path.iterdir())


def test_unknown_options_end_with_two():
    assert veclink("link", "--sauce", "x").returncode == 2


def test_help_needs_neither_spark_nor_java():
    done = subprocess.run(
        [sys.executable, "-m", "veclink.cli", "--help"], capture_output=True, text=True, env={"PATH": ""}, check=True
    )
    for verb in ("prepare", "diagnose", "link", "measure", "cycles"):
        assert verb in done.stdout


@pytest.mark.parametrize("job", ["prepare", "diagnose", "link", "measure", "cycles"])
def test_jobs_take_the_options_of_their_verb(job):
    done = veclink("--help", entry=(str(ROOT / "jobs" / f"{job}.py"),))
    assert done.returncode == 0
    assert f"veclink {job}" in done.stdout


def test_a_locked_output_folder_ends_with_five(tmp_path, called):
    with output_lock(str(tmp_path)):
        code, _, said = called("link", *FILES, "--seeds", str(SAMPLE / "seeds.csv"), "--out", str(tmp_path))
    assert code == 5
    assert "another run is writing" in said
