"""The look before a run, on real tables: what it says, what it keeps, and that it never sees more than its sample."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from clouds import problem
from link_runs import lay_out, names, write_cloud, write_pairs
from veclink import tables
from veclink.errors import InputError
from veclink.runs.diagnose import diagnose
from veclink.runs.link import LinkRequest
from veclink.settings import load_settings

QUICK = load_settings(overrides=["diagnose.shuffles=19", "diagnose.sample_rows=200"])


@pytest.fixture(scope="module")
def looked(spark, tmp_path_factory):
    p = problem(draw=2)
    request = lay_out(tmp_path_factory.mktemp("diagnose"), p)
    return p, request, diagnose(spark, request, QUICK)


@pytest.fixture(scope="module")
def prepared(looked):
    """The same clouds once more, prepared by the first look; nothing is kept."""
    request = looked[1]
    return LinkRequest(f"{request.out}/source", f"{request.out}/target", "", request.seeds)


def test_true_seeds_of_like_clouds_are_expected_to_work(looked):
    p, _, report = looked
    assert report["verdict"] == "expected"
    assert f"{report['agreement']['correlation']:.2f}" in report["reason"]
    assert report["seeds"] == {
        "count": len(p.seeds), "source_rank": 20, "source_dim": 48, "target_rank": 20, "target_dim": 64,
    }  # fmt: skip
    assert any("rank 20 of 48 (source)" in w for w in report["warnings"])
    assert [c["side"] for c in report["clouds"]] == ["source", "target"]
    assert [c["sample_rows"] for c in report["clouds"]] == [200, 200]
    assert [c["vectors"] for c in report["clouds"]] == [len(p.source), len(p.target)]
    json.dumps(report)


def test_the_page_holds_everything_itself(looked):
    _, request, report = looked
    page = Path(report["page"])
    assert page == Path(request.out) / "diagnose.html"
    text = page.read_text()
    assert text.count("data:image/svg+xml;base64,") == 6
    assert not re.findall(r'(?:src|href)="(?!data:)', text)
    assert report["reason"][1:] in text
    for figure in ("intrinsic dimension", "hub skewness", "CKA", "common ground"):
        assert figure in text


def test_seeds_in_the_wrong_order_are_a_verdict_and_no_error(spark, looked, prepared, tmp_path):
    p = looked[0]
    moved = p.seeds[:, 1][[*range(1, len(p.seeds)), 0]]
    pairs = [(f"a{a:05d}", f"b{b:05d}") for a, b in zip(p.seeds[:, 0].tolist(), moved.tolist(), strict=True)]
    report = diagnose(spark, replace(prepared, seeds=write_pairs(tmp_path / "wrong.csv", pairs)), QUICK)
    assert report["verdict"] == "not expected"
    assert "p = " in report["reason"]
    assert report["page"] is None


def test_anchors_that_lie_in_neither_cloud_are_looked_at_too(spark, looked, prepared, tmp_path):
    p = looked[0]
    pairs = list(p.truth.items())[:40]
    anchors = [
        write_cloud(tmp_path / f"{side}.parquet", names("x", 40), rows[[pair[at] for pair in pairs]])
        for at, (side, rows) in enumerate((("s", p.source), ("t", p.target)))
    ]
    report = diagnose(spark, replace(prepared, seeds=None, anchors=(anchors[0], anchors[1])), QUICK)
    assert report["verdict"] == "expected"
    assert report["seeds"]["count"] == 40


def test_a_second_look_says_the_same_from_prepared_clouds(spark, looked, prepared):
    report = diagnose(spark, prepared, QUICK)
    assert {**report, "page": None} == {**looked[2], "page": None}


def test_no_more_than_the_sample_comes_to_the_driver(spark, prepared, monkeypatch):
    from veclink import arrow_cols

    seen = []
    real = arrow_cols.matrix
    monkeypatch.setattr(arrow_cols, "matrix", lambda column, dim: seen.append(len(column)) or real(column, dim))
    diagnose(spark, prepared, QUICK)
    assert max(seen) == 200


def test_what_link_refuses_is_refused(spark, looked, prepared):
    with pytest.raises(InputError, match="seeds or from two anchor tables"):
        diagnose(spark, replace(prepared, seeds=None), QUICK)
    with pytest.raises(InputError, match="same table"):
        diagnose(spark, replace(prepared, target=prepared.source), QUICK)


def test_link_finds_the_clouds_that_a_look_has_prepared(spark, looked):
    out = looked[1].out
    assert tables.is_delta(spark, f"{out}/source/points")
    assert not tables.is_delta(spark, f"{out}/run")
