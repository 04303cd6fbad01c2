"""The readings of the posterior as sums over evidence, against the definitions pair by pair."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from veclink import schemas
from veclink.kernels.posterior import posterior_mean
from veclink.stages.evidence import at_or_above, standing, tally

VIEWS = [5, 7, 9]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    out = []
    for number, views in enumerate(VIEWS, 1):
        for pair in rng.choice(60, 30, replace=False).tolist():
            held = int(rng.integers(0, 3))
            proposals = int(rng.integers(0, views + 1))
            own = min(held, proposals)
            out.append((number, views, pair // 8, pair % 8, proposals, held, own, proposals * 7_000, proposals * 3_000))
    return out


@pytest.fixture(scope="module")
def evidence(spark, rows):
    return spark.createDataFrame(rows, schemas.EVIDENCE)


def slow(rows, update, out_of_bag, rounds):
    """pair -> (votes, opportunities), by walking through the rounds."""
    votes, chances, held_sum, last, now = Counter(), Counter(), Counter(), {}, {}
    for number, views, a, b, proposals, held, own, *_ in rows:
        if number > rounds:
            continue
        pair = (a, b)
        votes[pair] += proposals - (own if out_of_bag else 0)
        held_sum[pair] += held if out_of_bag else 0
        if proposals:
            chances[pair] += views - (held if out_of_bag else 0)
            last[pair] = number
        if number == rounds:
            now[pair] = (proposals - own, views - held)
    pairs = [p for p in last if update == "all_pairs" or last[p] == rounds]
    total = sum(VIEWS[:rounds])
    return {
        p: (votes[p], total - held_sum[p] if update == "all_pairs" else chances[p], *now.get(p, (0, VIEWS[rounds - 1])))
        for p in pairs
    }


@pytest.mark.parametrize("update", ["all_pairs", "proposed_pairs"])
@pytest.mark.parametrize("out_of_bag", [False, True])
@pytest.mark.parametrize("rounds", [2, 3])
def test_standing_is_that_of_the_definition(evidence, rows, update, out_of_bag, rounds):
    frame = standing(evidence, VIEWS[:rounds], update, out_of_bag)
    assert frame.columns == schemas.columns(schemas.STANDING)
    found = {
        (r.source_row, r.target_row): (r.votes, r.opportunities, r.recent_votes, r.recent_opportunities)
        for r in frame.collect()
    }
    assert found == slow(rows, update, out_of_bag, rounds)


def test_score_is_the_mean_over_the_proposing_views(evidence):
    for r in standing(evidence, VIEWS, "all_pairs", False).collect():
        assert (r.score, r.margin) == (pytest.approx(7e-6), pytest.approx(3e-6))


def test_tally_counts_pairs_by_votes_and_opportunities(evidence, rows):
    expected = Counter((v, n) for v, n, *_ in slow(rows, "all_pairs", False, 3).values())
    votes, chances, count = tally(standing(evidence, VIEWS, "all_pairs", False))
    assert dict(zip(zip(votes.tolist(), chances.tolist(), strict=True), count.tolist(), strict=True)) == expected


def test_pairs_exactly_on_the_threshold_are_kept(evidence):
    frame = standing(evidence, VIEWS, "all_pairs", False)
    everything = at_or_above(frame, 0.0)
    posterior = posterior_mean(everything["votes"].to_numpy(), everything["opportunities"].to_numpy())
    for threshold in np.unique(posterior).tolist():
        assert at_or_above(frame, threshold).num_rows == (posterior >= threshold).sum()
    rows = everything.select(["source_row", "target_row"])
    assert rows.equals(rows.sort_by([("source_row", "ascending"), ("target_row", "ascending")]))
    assert isinstance(everything, pa.Table)
