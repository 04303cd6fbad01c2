"""When links count as found again as seeds are, and the count behind it against scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from veclink.kernels.recovery import Recovery, ahead
from veclink.settings import ConsensusSettings

HOW = ConsensusSettings()
LIMITS = HOW.takeoff_recovery, HOW.takeoff_seeds, HOW.takeoff_ahead


@pytest.mark.parametrize(
    ("pairs", "seeds", "enough"),
    [
        (0.54, 0.52, True),  # unlike encoders: as many links as seeds are found again
        (0.60, 0.90, False),  # links that are found much less often than right pairs are
        (0.95, 0.05, False),  # links that only support each other
        (0.35, 0.30, False),
        (0.80, None, True),
        (0.70, None, False),
        (None, None, False),  # too few links to test
    ],
)
def test_a_run_took_off_if_its_links_are_found_again_as_seeds_are(pairs, seeds, enough):
    assert Recovery(pairs, seeds).took_off(*LIMITS) == enough


@pytest.mark.parametrize(
    ("lead", "seeds", "enough"),
    [(0.5, 20, True), (0.8, 20, True), (0.9, 20, False), (0.9, 5, True), (0.1, 20, True)],  # five seeds tell less
)
def test_links_that_lie_well_behind_the_seeds_are_wrong(lead, seeds, enough):
    assert Recovery(1.0, 1.0, seeds, lead).took_off(*LIMITS) == enough


def test_how_often_ones_are_ahead_of_others_is_what_scipy_counts():
    rng = np.random.default_rng(0)
    for p, q in ((7, 40), (40, 7), (1, 1)):
        ones, others = rng.integers(0, 9, p).astype(float), rng.integers(0, 9, q).astype(float)  # with ties
        assert ahead(ones, others) == pytest.approx(mannwhitneyu(ones, others).statistic / (p * q))
    assert ahead(np.array([]), others) is None
    assert ahead(ones, np.array([])) is None
