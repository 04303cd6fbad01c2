"""Which clouds link runs have in common, and which sets of runs are refused."""

from __future__ import annotations

import pytest

from veclink.errors import InputError
from veclink.runs.cycle_inputs import LinkRun, numbered, triangles
from veclink.runs.prepare import PreparedCloud


def cloud(name: str, key: str = "", encoder: str | None = None, folder: str = "") -> PreparedCloud:
    return PreparedCloud(
        folder or f"/prepared/{name}",
        encoder,
        4,
        9,
        9,
        0,
        0,
        f"/raw/{name}",
        f"version of {name}",
        key or f"key of {name}",
    )


X, Y, Z, W = (cloud(name) for name in "xyzw")


def runs(*sides: tuple[PreparedCloud, PreparedCloud]) -> list[LinkRun]:
    return [LinkRun(f"/run{i}", f"key{i}", f"writer{i}", pair) for i, pair in enumerate(sides)]


def test_clouds_are_numbered_by_name_whatever_the_order_and_direction_of_runs():
    names, found = numbered(runs((Z, Y), (X, Z), (Y, X)))
    assert names == ["/raw/x", "/raw/y", "/raw/z"]
    assert [(run.folder, run.numbers, run.pair) for run in found] == [
        ("/run2", (1, 0), (0, 1)), ("/run1", (0, 2), (0, 2)), ("/run0", (2, 1), (1, 2))
    ]  # fmt: skip


def test_one_cloud_may_lie_in_two_folders():
    moved = cloud("x", folder="/elsewhere/x")
    assert numbered(runs((X, Y), (Z, moved), (Y, Z)))[0] == ["/raw/x", "/raw/y", "/raw/z"]


def test_two_encoders_of_one_table_are_two_clouds():
    one, other = cloud("x", "one", "minilm"), cloud("x", "other", "mpnet")
    assert numbered(runs((one, other), (one, Z), (other, Z)))[0] == ["/raw/x (minilm)", "/raw/x (mpnet)", "/raw/z"]


@pytest.mark.parametrize("other", [cloud("x", "other"), cloud("x", "other", "minilm")])
def test_a_cloud_prepared_in_two_ways_is_refused(other):
    with pytest.raises(InputError, match="/raw/x was prepared in two ways"):
        numbered(runs((X, Y), (other, Z), (Y, Z)))


def test_two_runs_over_the_same_clouds_are_refused():
    with pytest.raises(InputError, match=r"two link runs join /raw/x and /raw/y.*/run0 and /run3"):
        numbered(runs((X, Y), (X, Z), (Y, Z), (Y, X)))


def test_runs_in_a_row_are_refused():
    with pytest.raises(InputError, match=r"no three clouds are linked.*/raw/y and /raw/z"):
        numbered(runs((X, Y), (Y, Z), (Z, W)))


def test_triangles_of_four_clouds():
    assert triangles([(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)]) == [(0, 1, 2), (2, 3, 4)]
