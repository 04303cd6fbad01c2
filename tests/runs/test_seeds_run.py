"""Seeds as users give them: wrong columns, unknown ids, repeats, wrong order, too few."""

from __future__ import annotations

import csv

import numpy as np
import pyarrow as pa
import pytest

from clouds import problem
from link_runs import lay_out, names, write_cloud, write_pairs
from veclink.errors import InputError
from veclink.runs import seeds as reader
from veclink.runs.prepare import prepare
from veclink.settings import load_settings

LINK = load_settings().link


@pytest.fixture(scope="module")
def world(spark, tmp_path_factory):
    """A problem with two copies of a vector (rows 7 and 8 of the source) and one zero vector (row 9 of the target)."""
    p = problem(300, seeds=15)
    p.source[8] = p.source[7]
    p.target[9] = 0
    folder = tmp_path_factory.mktemp("seeds")
    request = lay_out(folder, p)
    settings = load_settings()
    clouds = tuple(
        prepare(spark, loc, f"{folder}/{i}", settings) for i, loc in enumerate((request.source, request.target))
    )
    usable = {s: t for s, t in p.truth.items() if s not in (7, 8) and t != 9}
    return p, clouds, [(f"a{s:05d}", f"b{t:05d}") for s, t in sorted(usable.items())][:15]


def seeds_of(spark, world, tmp_path, pairs, **choice):
    _, clouds, _ = world
    given = reader.read_pairs(spark, write_pairs(tmp_path / "seeds.csv", pairs), "seeds")
    return reader.from_pairs(spark, given, clouds, LINK.model_copy(update=choice))


def test_seeds_come_with_their_rows_and_vectors(spark, world, tmp_path):
    p, _, good = world
    seeds = seeds_of(spark, world, tmp_path, good)
    assert seeds.pairs == tuple(sorted(good))
    assert seeds.warnings == ()
    rows = np.array([int(a[1:]) for a, _ in seeds.pairs])
    np.testing.assert_allclose(seeds.anchors.seed_source, p.source[rows], atol=1e-6)
    assert len(seeds.anchors) == 15


def test_unknown_ids_are_named_with_their_side(spark, world, tmp_path):
    with pytest.raises(InputError, match=r"not in the target .* Got b99999"):
        seeds_of(spark, world, tmp_path, [*world[2], ("a00000", "b99999")])


def test_columns_in_the_wrong_order_are_named(spark, world, tmp_path):
    with pytest.raises(InputError, match=r"not in the source .* the columns look swapped"):
        seeds_of(spark, world, tmp_path, [(b, a) for a, b in world[2]])


def test_columns_in_the_wrong_order_are_told_where_both_sides_have_the_same_ids(spark, tmp_path):
    p = problem(300, seeds=15)
    folders = []
    for side, cloud in enumerate((p.source, p.target)):
        location = write_cloud(tmp_path / f"{side}.parquet", names("x", len(cloud)), cloud)
        folders.append(prepare(spark, location, f"{tmp_path}/{side}", load_settings()))
    turned = [(f"x{b:05d}", f"x{a:05d}") for a, b in p.seeds.tolist()]
    with pytest.raises(InputError, match="with the two columns swapped they do"):
        reader.from_pairs(spark, sorted(turned), (folders[0], folders[1]), LINK)


def test_a_seed_whose_vector_was_rejected_is_dropped_and_said(spark, world, tmp_path):
    seeds = seeds_of(spark, world, tmp_path, [*world[2], ("a00007", "b00009")])
    assert len(seeds.pairs) == 15
    assert any("a vector of theirs was rejected" in w and "b00009" in w for w in seeds.warnings)


def test_seeds_that_share_a_vector_count_once(spark, world, tmp_path):
    good = world[2]
    free = [t for t in range(20, 60) if f"b{t:05d}" not in {b for _, b in good}]
    seeds = seeds_of(spark, world, tmp_path, [*good, ("a00007", f"b{free[0]:05d}"), ("a00008", f"b{free[1]:05d}")])
    assert len(seeds.pairs) == 16
    assert any("repeat another seed's" in w for w in seeds.warnings)


def test_repeated_rows_count_once(spark, world, tmp_path):
    assert len(seeds_of(spark, world, tmp_path, [*world[2], *world[2][:3]]).pairs) == 15


def test_one_id_with_two_partners_is_refused(spark, world, tmp_path):
    first = world[2][0]
    with pytest.raises(InputError, match=f"gives one source_id two partners. Got {first[0]}"):
        seeds_of(spark, world, tmp_path, [*world[2], (first[0], "b00200")])


def test_anchors_in_another_order_on_one_side_are_refused(spark, world, tmp_path):
    good = world[2]
    turned = [(a, b) for (a, _), (_, b) in zip(good, good[1:] + good[:1], strict=True)]
    with pytest.raises(InputError, match="no better than shuffled pairs do"):
        seeds_of(spark, world, tmp_path, turned)
    assert "no better than shuffled" in seeds_of(spark, world, tmp_path, turned, seed_check="warn").warnings[0]
    assert seeds_of(spark, world, tmp_path, turned, seed_check="off").warnings == ()


def test_too_few_seeds_are_refused(spark, world, tmp_path):
    with pytest.raises(InputError, match="at least 3 seeds"):
        seeds_of(spark, world, tmp_path, world[2][:2])
    with pytest.raises(InputError, match=r"at least 3 seeds. Got 2 usable ones, 3 held back \(link.holdback_seeds\)"):
        seeds_of(spark, world, tmp_path, world[2][:5], holdback_seeds=3)


def test_missing_columns_and_empty_tables_are_named(spark, tmp_path):
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("left,right\n1,2\n")
    with pytest.raises(InputError, match="lacks column source_id and target_id"):
        reader.read_pairs(spark, str(wrong), "seeds")
    with pytest.raises(InputError, match="has 0 rows"):
        reader.read_pairs(spark, write_pairs(tmp_path / "none.csv", []), "seeds")
    spaced = tmp_path / "spaced.csv"
    spaced.write_text("source_id, target_id\na1 , b1\n")
    assert reader.read_pairs(spark, str(spaced), "seeds") == [("a1", "b1")]
    odd = [("a,1", 'b"1"'), ('"', "b\\2"), (" lead", "trail "), ("line\nbreak", "ü")]
    with (tmp_path / "odd.csv").open("w", newline="") as handle:
        csv.writer(handle, quoting=csv.QUOTE_ALL).writerows([("source_id", "target_id"), *odd])
    assert reader.read_pairs(spark, str(tmp_path / "odd.csv"), "seeds") == sorted(odd, key=str)
    with pytest.raises(InputError, match=r"rows that lack an id\. Got "):
        reader.read_pairs(spark, write_pairs(tmp_path / "null.csv", [("a", "")]), "seeds")


def test_number_ids_match_as_text(spark, tmp_path):
    frame = spark.createDataFrame(pa.table({"source_id": [1, 2], "target_id": [10, 20]}))
    frame.write.parquet(f"{tmp_path}/pairs")
    assert reader.read_pairs(spark, f"{tmp_path}/pairs", "seeds") == [("1", "10"), ("2", "20")]


def test_anchor_tables_pair_up_by_id(spark, tmp_path):
    p = problem(60, overlap=1.0, seeds=3)
    settings = load_settings()
    both = [p.source[sorted(p.truth)], p.target[[p.truth[s] for s in sorted(p.truth)]]]
    folders = []
    for i, (rows, ids) in enumerate(zip(both, (names("x", 60), names("x", 60)[10:] + names("y", 10)), strict=True)):
        shifted = rows if i == 0 else np.roll(rows, -10, axis=0)
        location = write_cloud(tmp_path / f"{i}.parquet", ids, shifted)
        folders.append(prepare(spark, location, f"{tmp_path}/{i}", settings))
    seeds = reader.from_vectors(spark, (folders[0], folders[1]), LINK)
    assert len(seeds.anchors) == 50
    assert seeds.names == tuple((n, n) for n in names("x", 60)[10:])
    assert seeds.pairs == ()
    np.testing.assert_allclose(seeds.anchors.seed_source, both[0][10:], atol=1e-6)
    np.testing.assert_allclose(seeds.anchors.seed_target, both[1][10:], atol=1e-6)
