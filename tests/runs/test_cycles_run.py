"""Cycles among small link runs: figures by hand, the same answer in any order, refusals."""

from __future__ import annotations

import io
import json
import shutil
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from link_loops import find_loops, world
from link_runs import names
from veclink import schemas
from veclink.errors import InputError
from veclink.kernels.cycles import judge
from veclink.runs import record as records
from veclink.runs.cycles import CyclesRequest, cycles
from veclink.runs.measure import measure
from veclink.runs.progress import Lines
from veclink.settings import Settings

SETTINGS = Settings()
ROWS = 300
PAIRS = [(0, 1), (0, 2), (1, 2)]
# Row 299 of each cloud has the vector of row 298.
COPY, COPIED = ROWS - 1, ROWS - 2
CONTRADICTION = [("x00000", "y00000"), ("x00000", "z00000"), ("y00000", "z00001")]
SEED = (f"x{COPIED:05d}", f"y{COPY:05d}")


def write(folder: Path, name: str, ddl: str, rows: list[tuple]) -> None:
    """A Delta table, without a JVM: dozens of them are quick this way."""
    kinds = {"STRING": pa.string(), "DOUBLE": pa.float64(), "BIGINT": pa.int64(), "INT": pa.int32()}
    kinds |= {"BOOLEAN": pa.bool_(), "ARRAY<FLOAT>": pa.list_(pa.float32()), "ARRAY<STRING>": pa.list_(pa.string())}
    kinds["MAP<STRING"] = pa.map_(pa.string(), pa.int64())
    columns = [part.split()[:2] for part in ddl.split(", ") if not part.startswith("BIGINT>")]
    values = zip(*rows, strict=True) if rows else [[]] * len(columns)
    arrays = [pa.array(list(v), kinds[kind]) for v, (_, kind) in zip(values, columns, strict=True)]
    write_deltalake(folder / name, pa.table(arrays, [n for n, _ in columns]))


def write_prepared(folder: Path, name: str, input_: str = "", *, key: str = "", encoder=None) -> str:
    """A prepared cloud of ROWS ids name00i in row i, the last two in one row; its points do not matter here."""
    place, ids = folder / name, names(name[0], ROWS)
    write(place, "ids", schemas.IDS, [(i, min(r, COPIED), 1 + (r >= COPIED)) for r, i in enumerate(ids)])
    write(place, "points", schemas.POINTS, [])
    write(place, "rejects", schemas.REJECTS, [])
    origin = input_ or f"/raw/{name}.parquet"
    row = (
        encoder,
        origin,
        f"version of {origin}",
        key or f"key of {name}",
        4,
        ROWS,
        ROWS,
        0,
        ROWS - 1,
        1,
        1.0,
        1.0,
        1.0,
    )
    write(place, "statistics", schemas.STATISTICS, [(*row, [], [])])
    return str(place)


@pytest.fixture(scope="module")
def clouds(tmp_path_factory):
    """Folders of three prepared clouds; row i of cloud x has id x00i."""
    folder = tmp_path_factory.mktemp("clouds")
    return [write_prepared(folder, name) for name in "xyz"]


def write_run(spark, out: Path, sides: tuple[str, str], links, *, seeds=(), status=records.DONE) -> str:
    """A link run's folder. sides: prepared clouds. links: (source id, target id, confidence of the points)."""
    inputs = records.Inputs(sides[0], sides[1], {"source": sides[0], "target": sides[1], "seeds": out.name}, [])
    settings = SETTINGS.model_dump_json()
    key = records.run_key(inputs, SETTINGS)
    records.write(spark, str(out), records.Record(key, uuid.uuid4().hex, status, inputs, settings, {}))
    columns = schemas.columns(schemas.LINKS)
    rows = []
    for a, b, p in links:
        copies = [1 + (int(i[1:]) >= COPIED) for i in (a, b)]
        seed = (a, b) in seeds
        row = dict.fromkeys(columns) | {"source_id": a, "target_id": b, "is_seed": seed}
        row |= {"confidence": 1.0 if seed else p / max(copies), "source_copies": copies[0], "target_copies": copies[1]}
        rows.append(tuple(row[c] for c in columns))
    write(out, "links", schemas.LINKS, rows)
    return str(out)


def write_runs(spark, folder: Path, clouds, links, *, flip=(), seeds=()) -> tuple[str, ...]:
    """Three runs from links ((cloud, row), (cloud, row)) -> confidence. flip: pairs written the other way round."""
    places = []
    for a, b in PAIRS:
        rows = [
            (f"{'xyz'[a]}{i:05d}", f"{'xyz'[b]}{j:05d}", p) for ((c, i), (d, j)), p in links.items() if (c, d) == (a, b)
        ]
        sides, given = (clouds[a], clouds[b]), set(seeds)
        if (a, b) in flip:
            rows, sides = [(j, i, p) for i, j, p in rows], sides[::-1]
            given = {s[::-1] for s in given}
        places.append(write_run(spark, folder / f"{a}{b}", sides, rows, seeds=given))
    return tuple(places)


def read(out, name):
    table = DeltaTable(f"{out}/{name}").to_pyarrow_table()
    return table.sort_by([(c, "ascending") for c in table.column_names[:4] if c != "confidence"]).to_pylist()


@pytest.fixture(scope="module")
def known():
    """Links of a world of 280 objects with their confidences."""
    w = world(280, 0.3, draw=3)
    return dict(zip(w.links, w.confidence.tolist(), strict=True))


@pytest.fixture(scope="module")
def first(spark, clouds, known, tmp_path_factory):
    """The runs, the output folder and its report."""
    folder = tmp_path_factory.mktemp("cycles")
    runs = write_runs(spark, folder, clouds, known)
    out = str(folder / "out")
    return runs, out, cycles(spark, CyclesRequest(runs, out), SETTINGS)


def test_links_get_the_verdict_of_the_kernel_and_the_counts_of_a_slow_search(first, known):
    loops = find_loops(list(known))
    wanted = judge(np.array(list(known.values())), loops, SETTINGS.cycles.kappa)
    counts = np.stack(loops.counts(), axis=1)
    found = {(r["source_id"], r["target_id"]): r for r in read(first[1], "links")}
    assert len(found) == len(known)
    for i, ((a, b), p) in enumerate(known.items()):
        row = found[f"{'xyz'[a[0]]}{a[1]:05d}", f"{'xyz'[b[0]]}{b[1]:05d}"]
        assert (row["source_cloud"], row["target_cloud"]) == (a[0], b[0])
        assert (row["closed"], row["broken"], row["open"]) == tuple(counts[i])
        assert row["confidence_before"] == pytest.approx(p)
        assert row["confidence"] == pytest.approx(wanted.confidence[i], abs=1e-5)


def test_the_report_sums_the_tables_up(first):
    _, out, report = first
    links, suggested, members = (read(out, name) for name in ("links", "suggested", "groups"))
    json.dumps(report)
    assert [c["name"].rsplit("/", 1)[1] for c in report["clouds"]] == ["x.parquet", "y.parquet", "z.parquet"]
    for figures in report["pairs"]:
        pair = figures["source_cloud"], figures["target_cloud"]
        mine = [r for r in links if (r["source_cloud"], r["target_cloud"]) == pair]
        assert figures["links"] == len(mine)
        assert figures["closed"] == sum(r["closed"] > 0 for r in mine) > 0
        assert figures["confidence"] == pytest.approx(np.mean([r["confidence"] for r in mine]))
        assert figures["suggested"] == sum((r["source_cloud"], r["target_cloud"]) == pair for r in suggested)
    sizes = np.bincount([m["group"] for m in members])
    assert {g["clouds"]: g["groups"] for g in report["groups"]} == {n: int((sizes == n).sum()) for n in (2, 3)}
    assert len({(m["group"], m["cloud"]) for m in members}) == len(members)
    assert {r["links"] for r in report["runs"]} == set(first[0])


def test_suggested_links_join_what_has_no_link(first, known):
    linked = {(a, b[0]) for a, b in known} | {(b, a[0]) for a, b in known}
    suggested = read(first[1], "suggested")
    assert suggested
    for row in suggested:
        ends = [(row[f"{side}_cloud"], int(row[f"{side}_id"][1:])) for side in ("source", "target")]
        assert (ends[0], ends[1][0]) not in linked
        assert (ends[1], ends[0][0]) not in linked
        assert (row["through"], row["confidence"] >= SETTINGS.consensus.min_confidence) == (1, True)


def test_order_and_direction_of_runs_and_partitions_do_not_matter(spark, clouds, known, first, tmp_path):
    runs = write_runs(spark, tmp_path, clouds, known, flip=[(0, 1), (1, 2)])
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "7")
    try:
        cycles(spark, CyclesRequest(runs[::-1], str(tmp_path / "out")), SETTINGS)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    for name in ("links", "suggested", "groups"):
        assert read(tmp_path / "out", name) == read(first[1], name)


def test_the_same_again_is_stored_and_writes_nothing(spark, first):
    runs, out, report = first
    version = DeltaTable(f"{out}/links").version()
    assert cycles(spark, CyclesRequest(runs, out), SETTINGS) == report
    assert DeltaTable(f"{out}/links").version() == version


@pytest.fixture(scope="module")
def small(spark, clouds, first, tmp_path_factory):
    """Links of copies and a contradiction, judged into a folder that held another run: folder, report."""
    links = {
        # A copy on each side, linked crosswise by a seed: in points, the loop closes.
        ((0, COPIED), (1, COPY)): 1.0, ((0, COPY), (1, COPIED)): 1.0,
        ((0, COPIED), (2, COPIED)): 0.9, ((0, COPY), (2, COPY)): 0.9,
        ((1, COPIED), (2, COPIED)): 0.6, ((1, COPY), (2, COPY)): 0.6,
        # Seeds of the three runs that contradict each other.
        ((0, 0), (1, 0)): 1.0, ((0, 0), (2, 0)): 1.0, ((1, 0), (2, 1)): 1.0,
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("small")
    runs, out = write_runs(spark, folder, clouds, links, seeds=[SEED, *CONTRADICTION]), str(folder / "out")
    shutil.copytree(first[1], out)
    with pytest.raises(InputError, match="holds another run"):
        cycles(spark, CyclesRequest(runs, out), SETTINGS)
    assert read(out, "links") == read(first[1], "links")
    return out, cycles(spark, CyclesRequest(runs, out, overwrite=True), SETTINGS)


def test_another_run_replaces_the_first_only_when_told(first, small):
    assert small[1]["run_key"] != first[2]["run_key"]
    assert len(read(small[0], "links")) == 9


def test_copies_are_one_point_and_seeds_stay(small):
    found = {(r["source_id"], r["target_id"]): r for r in read(small[0], "links")}
    assert [r["broken"] for r in found.values() if int(r["source_id"][1:]) >= COPIED] == [0] * 6
    assert (found[SEED]["confidence"], found[SEED]["closed"], found[SEED]["is_seed"]) == (1.0, 1, True)
    assert found[f"x{COPY:05d}", f"y{COPIED:05d}"]["confidence"] == 0.5
    doubtful = found[f"y{COPY:05d}", f"z{COPY:05d}"]
    assert doubtful["confidence_before"] == 0.3
    assert 0.4 < doubtful["confidence"] <= 0.5


def test_groups_hold_all_copies_and_one_point_of_a_cloud(small):
    out, report = small
    contradicting = [r for r in read(out, "links") if r["broken"]]
    assert [(r["source_id"], r["target_id"]) for r in contradicting] == CONTRADICTION
    assert [r["confidence"] for r in contradicting] == [1.0] * 3
    assert report["links_left_out"] == 1
    members = read(out, "groups")
    groups = [sorted(m["id"] for m in members if m["group"] == g) for g in range(2)]
    assert groups[0] == ["x00000", "y00000", "z00000"]
    assert groups[1] == sorted(f"{c}{i:05d}" for c in "xyz" for i in (COPY, COPIED))
    assert report["groups"] == [{"clouds": 3, "groups": 2}]


def chain(spark, folder, clouds, **more):
    return write_run(spark, folder, clouds, [("x00000", "y00000", 0.9)], **more)


@pytest.mark.parametrize(
    ("status", "said"), [(records.RUNNING, "has not ended"), (records.NOT_TAKEN_OFF, "did not take off")]
)
def test_a_run_without_an_answer_is_refused_by_name(spark, first, clouds, tmp_path, status, said):
    bad = chain(spark, tmp_path / "bad", (clouds[0], clouds[1]), status=status)
    with pytest.raises(InputError, match=f"bad {said}"):
        cycles(spark, CyclesRequest((*first[0][1:], bad), str(tmp_path / "out")), SETTINGS)


def test_a_run_outside_of_all_loops_is_named_and_passed_on(spark, first, clouds, tmp_path):
    apart = write_prepared(tmp_path, "w")
    other = write_run(spark, tmp_path / "other", (clouds[0], apart), [("x00000", "w00000", 0.9)])
    said = io.StringIO()
    report = cycles(spark, CyclesRequest((*first[0], other), str(tmp_path / "out")), SETTINGS, Lines(said))
    assert f"warning: {other} is in no three runs that join three clouds: its links stay as they are" in said.getvalue()
    found = [pair["found"] for pair in report["pairs"]]
    assert found.count(None) == 1
    assert report["pairs"][found.index(None)]["confidence"] == pytest.approx(0.9)


def test_what_is_no_link_run_is_refused(spark, first, tmp_path):
    (tmp_path / "empty").mkdir()
    for other in (str(tmp_path / "empty"), first[1]):
        with pytest.raises(InputError, match="holds no link run"):
            cycles(spark, CyclesRequest((*first[0][1:], other), str(tmp_path / "out")), SETTINGS)
    with pytest.raises(InputError, match=r"holds no finished link run.*veclink cycles"):
        measure(spark, first[1], None, SETTINGS)


def test_a_prepared_cloud_that_is_gone_is_named(spark, first, clouds, tmp_path):
    gone = chain(spark, tmp_path / "gone", (clouds[2], str(tmp_path / "nowhere")))
    with pytest.raises(InputError, match=r"a prepared cloud of the link run in .*gone is gone.*nowhere"):
        cycles(spark, CyclesRequest((*first[0][1:], gone), str(tmp_path / "out")), SETTINGS)


def test_too_few_runs_and_an_output_inside_a_run_or_a_cloud_are_refused(spark, first, clouds, tmp_path):
    with pytest.raises(InputError, match="at least three"):
        cycles(spark, CyclesRequest(first[0][:2], str(tmp_path / "out")), SETTINGS)
    with pytest.raises(InputError, match="must be apart"):
        cycles(spark, CyclesRequest(first[0], f"{first[0][0]}/out"), SETTINGS)
    with pytest.raises(InputError, match="must be apart"):
        cycles(spark, CyclesRequest(first[0], clouds[0]), SETTINGS)
