"""The permutation test on seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from scipy.stats import pearsonr

from clouds import problem, unit
from veclink.kernels.seeds import consistency

SCIFACT = Path(__file__).parents[1] / "data" / "scifact.npz"


def seeds_of(count=15):
    p = problem(400, seeds=count)
    return p.source[p.seeds[:, 0]], p.target[p.seeds[:, 1]]


def test_correlation_is_pearson_of_the_pair_distances():
    a, b = seeds_of()
    expected = pearsonr(pdist(a, "cosine"), pdist(b, "cosine")).statistic
    assert consistency(a, b, 0, 9).correlation == pytest.approx(expected, abs=1e-4)


def test_true_pairs_pass_and_shuffled_pairs_do_not():
    a, b = seeds_of()
    assert consistency(a, b, 0).p_value <= 0.01
    assert consistency(a, np.roll(b, 1, axis=0), 0).p_value > 0.05


@pytest.mark.parametrize("count", [15, 30])
@pytest.mark.parametrize("encoders", [("minilm", "mpnet"), ("minilm", "use"), ("mpnet", "use")])
def test_pairs_of_real_encoders_pass_and_shuffled_ones_do_not(encoders, count):
    stored = np.load(SCIFACT)
    a, b = (unit(stored[e].astype(np.float32)) for e in encoders)
    for draw in range(5):
        rows = np.random.default_rng(draw).permutation(len(a))[:count]
        assert consistency(a[rows], b[rows], 0).p_value <= 0.05
        assert consistency(a[rows], b[np.roll(rows, 1)], 0).p_value > 0.05


def test_one_wrong_pair_does_not_condemn_the_others():
    a, b = seeds_of(20)
    b = b.copy()
    b[0] = -b[0]
    assert consistency(a, b, 0).p_value <= 0.05


def test_identical_seeds_have_no_correlation_to_speak_of():
    a, b = (np.repeat(x[:1], 6, axis=0) for x in seeds_of())
    assert consistency(a, b, 0).p_value == 1.0


def test_the_answer_repeats():
    a, b = seeds_of()
    assert consistency(a, b, 7, 99) == consistency(a, b, 7, 99)
