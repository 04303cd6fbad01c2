"""Verdicts of loops against an enumeration of all states, and by worlds whose right links are known."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from link_loops import find_loops, world
from veclink.kernels import cycles
from veclink.kernels.cycles import Loops, judge
from veclink.kernels.judge import expected_calibration_error

TRIANGLE = [((0, 0), (1, 0)), ((0, 0), (2, 0)), ((1, 0), (2, 0))]
BROKEN = [((0, 0), (1, 0)), ((0, 0), (2, 0)), ((1, 0), (2, 1))]
CHAIN = [((0, 0), (1, 0)), ((1, 0), (2, 0))]
ELSEWHERE = [((0, 9), (2, 9))]  # so that the third pair of clouds is there
FIVE = [((0, 0), (1, 0)), ((1, 0), (2, 0)), ((0, 1), (2, 0)), ((0, 1), (1, 1)), ((1, 1), (2, 1))]


def moved(links, by):
    return [tuple((c, row + by) for c, row in link) for link in links]


def settled(p, loops, kappa=0.2):
    model = cycles._Model(p, loops, kappa)
    for _ in range(120):
        model.step()
    return model


def enumerated(p, loops, model):
    """P(right) of every link: the weights as the module's text gives them, summed over all states of all links."""
    total, right = 0.0, np.zeros(len(p))
    missed = lambda a, b, pair: model.mu[pair] * np.sqrt(1 - p[a] * p[b])  # noqa: E731
    for state in itertools.product([False, True], repeat=len(p)):
        s, q = np.array(state), 1 - p
        weight = np.where(s, p, q).prod()
        for rows in loops.closed.tolist():
            wrong = [i for i in rows if not s[i]]
            if not wrong:
                chains = [(a, b, loops.pair[c]) for a, b, c in itertools.permutations(rows) if a < b]
                weight *= np.prod([1 - missed(*chain) for chain in chains]) ** (1 / 3)
            elif len(wrong) == 2:
                i, j = wrong
                weight *= min(model.kappa * np.sqrt(q[i] * q[j]), q[i], q[j]) / (q[i] * q[j])
            else:
                weight *= model.kappa if len(wrong) == 3 else 0
        for one, centre, other in loops.broken.tolist():
            weight *= not s[[one, centre, other]].all()
        unclosed = {(*sorted(c[:2]), loops.pair[c[2]], True) for f, m, e in loops.broken.tolist()
                    for c in ((f, m, e), (m, e, f))}  # fmt: skip
        unclosed |= {(a, b, pair, False) for (a, b), pair in zip(loops.open.tolist(), loops.open_pair, strict=True)}
        for a, b, pair, strays in unclosed:
            fine, wrong = missed(a, b, pair), 1 - model.kappa
            fine *= cycles.STRAY_RIGHT if strays else 1 - cycles.STRAY_RIGHT
            wrong *= model.stray if strays else 1 - model.stray
            weight *= (fine if strays else min(fine, wrong)) if s[a] and s[b] else wrong
        total, right = total + weight, right + weight * s
    return right / total


@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(0.05, 0.99), min_size=9, max_size=9))
def test_single_loops_get_the_posterior_of_all_their_states(confidence):
    links = TRIANGLE + moved(BROKEN, 10) + moved(CHAIN, 20) + ELSEWHERE
    loops, p = find_loops(links), np.array(confidence)
    assert (len(loops.closed), len(loops.broken), len(loops.open)) == (1, 1, 1)
    model = settled(p, loops)
    inside = sum(loops.counts()) > 0
    np.testing.assert_allclose(model.belief()[inside], enumerated(p, loops, model)[inside], atol=1e-5)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(0.3, 0.97), min_size=5, max_size=5))
def test_loops_that_share_links_are_nearly_exact(confidence):
    loops, p = find_loops(FIVE), np.array(confidence)
    assert len(loops.broken) == 3
    model = settled(p, loops)
    assert np.abs(model.belief() - enumerated(p, loops, model)).mean() < 0.1


def test_a_broken_loop_counts_once_for_each_of_its_links():
    closed, broken, opened = find_loops(BROKEN).counts()
    assert (closed.tolist(), broken.tolist(), opened.tolist()) == ([0] * 3, [1] * 3, [0] * 3)
    assert find_loops(FIVE).counts()[1].tolist() == [1, 2, 3, 2, 1]


def test_agreement_raises_contradiction_lowers_and_a_doubtful_centre_pays():
    links = TRIANGLE + moved(BROKEN, 10)
    p = np.array([0.9, 0.8, 0.7, 0.6, 0.95, 0.95])
    new = judge(p, find_loops(links), 0.2).confidence
    assert (new[:3] - p[:3]).sum() > 0.15
    assert new[2] > 0.8
    assert new[3] < 0.2
    assert (new[4:] > 0.8).all()


def test_an_open_chain_never_speaks_for_its_links():
    """However surely wrong chains stray, as far as the others tell: five that do, and one that does not."""
    links = [*CHAIN, *(link for i in range(5) for link in moved(BROKEN, 10 * (i + 1)))]
    p = np.concatenate([[0.6, 0.9], np.tile([0.6, 0.95, 0.95], 5)])
    loops = find_loops(links)
    assert loops.open.tolist() == [[0, 1]]
    assert (judge(p, loops, 0.2).confidence[:2] <= p[:2] + 1e-6).all()


def test_sure_links_stay_and_imply_the_third():
    p = np.array([1.0, 1.0, 0.6, 1.0, 1.0, 0.6])
    loops = find_loops(TRIANGLE + moved(BROKEN, 10))
    new = judge(p, loops, 0.2).confidence
    assert new[[0, 1, 3, 4]].tolist() == [1] * 4
    assert new[2] > 0.999
    assert new[5] < 0.001


def test_contradicting_seeds_stay_seeds():
    assert judge(np.ones(3), find_loops(BROKEN), 0.2).confidence.tolist() == [1, 1, 1]


def test_without_loops_nothing_changes():
    nothing = np.empty((0, 3), np.int64)
    loops = Loops(np.array([0, 1, 2]), nothing, nothing, nothing[:, :2], nothing[:, 0])
    np.testing.assert_allclose(judge(np.array([0.5, 0.7, 1.0]), loops, 0.2).confidence, [0.5, 0.7, 1.0], atol=1e-9)
    none = Loops(np.empty(0, np.int64), nothing, nothing, nothing[:, :2], nothing[:, 0])
    assert len(judge(np.empty(0), none).confidence) == 0


def ece(confidence, right):
    bins = np.minimum((confidence * 10).astype(int), 9)
    sums = [np.bincount(bins, w, 10) for w in (np.ones(len(right)), confidence, right.astype(float))]
    return expected_calibration_error(*sums)


@pytest.mark.parametrize(("clouds", "together"), [(3, 0.0), (3, 0.5), (3, 0.8), (4, 0.5)])
def test_verdicts_are_better_than_confidences_and_stay_calibrated(clouds, together):
    w = world(4_000, together, clouds=clouds)
    loops = find_loops(w.links)
    found = judge(w.confidence, loops, 0.2)
    before, after = ((c - w.right) ** 2 for c in (w.confidence, found.confidence))
    assert after.mean() < 0.95 * before.mean()
    assert ece(found.confidence, w.right) < 0.04
    closed = np.unique(loops.closed)
    assert found.confidence[closed].mean() == pytest.approx(w.right[closed].mean(), abs=0.03)


@pytest.mark.parametrize("together", [0.0, 0.2])  # where confidence goes with hardness, kappa comes out too high
def test_kappa_is_found_without_any_truth(together):
    w = world(8_000, together)
    loops = find_loops(w.links)
    closed = 3 * (~w.right[loops.closed].all(axis=1)).sum()
    ends = [(~w.right[loops.broken[:, side]].all(axis=1)).sum() for side in ([0, 1], [1, 2])]
    unclosed = sum(ends) + (~w.right[loops.open].all(axis=1)).sum()
    assert judge(w.confidence, loops).kappa == pytest.approx(closed / (closed + unclosed), abs=0.12)


def test_the_order_of_links_and_of_clouds_does_not_matter():
    w = world(300, 0.3)
    found = judge(w.confidence, find_loops(w.links))
    rng = np.random.default_rng(1)
    order = rng.permutation(len(w.links))
    names = np.array([2, 0, 1])  # renamed clouds, so that pairs are walked the other way round
    renamed = [tuple(sorted((int(names[c]), row) for c, row in w.links[i])) for i in order]
    again = judge(w.confidence[order], find_loops(renamed))
    np.testing.assert_allclose(again.confidence, found.confidence[order], atol=1e-5)
    assert again.kappa == pytest.approx(found.kappa, abs=1e-5)
