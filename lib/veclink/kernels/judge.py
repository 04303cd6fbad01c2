"""How good are links, and does their confidence mean what it says."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """Precision, recall and their harmonic mean; seeds count in none of them. 0 where undefined."""

    precision: float
    recall: float
    f1: float


def score(correct: int, found: int, wanted: int) -> Score:
    """correct: links that are true. found: all links without the seeds. wanted: all true pairs without the seeds."""
    precision = correct / found if found else 0.0
    recall = correct / wanted if wanted else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return Score(precision, recall, f1)


def expected_calibration_error(count: Floats, confidence_sum: Floats, correct_sum: Floats) -> float:
    """Mean over links of |mean confidence - share correct| of the link's bin (Naeini et al. 2015); 0 for no links.

    count, confidence_sum, correct_sum: (bins,) links, sum of their confidences, and number that are correct.
    """
    total = float(count.sum())
    return float(np.abs(confidence_sum - correct_sum).sum() / total) if total else 0.0
