"""The link loop in one process, without Spark or Delta: what the Spark path is compared with, in links and in time.

Evidence is kept pair by pair in dictionaries, round after round, as the formulas read.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from veclink import backends
from veclink.kernels.csls import list_length
from veclink.kernels.posterior import one_to_one, otsu_threshold, posterior_mean
from veclink.kernels.propose import propose
from veclink.kernels.views import plan_views, schedule, two_halves
from veclink.settings import LinkSettings


@dataclass
class Result:
    """What the loop ends with.

    anchors: promoted pairs without the seeds -> confidence. rounds: (pairs proposed, threshold, anchors) per round.
    recovery, taken_off: the take-off test of runs/rounds.py.
    """

    recovery: float = 0.0
    taken_off: bool = False
    anchors: dict[tuple[int, int], float] = field(default_factory=dict)
    rounds: list[tuple[int, float, int]] = field(default_factory=list)


def link_in_process(source, target, seeds, link: LinkSettings, workers: int = 1) -> Result:
    """Run the loop on unit rows; seeds: (s, 2) row pairs. workers: views evaluated at once, one thread each."""
    rounds_max = link.rounds_max_small if min(len(source), len(target)) <= link.small_rows else link.rounds_max
    held_by_seed = {tuple(p) for p in seeds.tolist()}
    votes, chances, held_sum = defaultdict(int), defaultdict(int), defaultdict(int)
    result, views_so_far, promoted = Result(), 0, np.empty((0, 2), np.int64)
    sizes: list[float] = []
    while len(result.rounds) < rounds_max:
        number = len(result.rounds) + 1
        plan = schedule(len(seeds) + len(promoted), len(seeds), *link.schedule)
        views = plan_views(source[promoted[:, 0]], len(seeds), plan, link.random_seed, number)
        proposed, own, held = defaultdict(int), defaultdict(int), defaultdict(int)
        held_rows = [np.concatenate([seeds, promoted[view.anchors]]) for view in views]
        for view, rows, found in zip(
            views, held_rows, evaluate((source, target), held_rows, link, workers), strict=True
        ):
            members = set(map(tuple, rows.tolist()))
            for pair in members:
                held[pair] += view.count
            for pair in zip(found.source.tolist(), found.target.tolist(), strict=True):
                proposed[pair] += view.count
                own[pair] += view.count * (pair in members)
        views_so_far += plan.views
        bag = link.evidence == "out_of_bag"
        for pair, n in proposed.items():
            votes[pair] += n - bag * own[pair]
            chances[pair] += plan.views - bag * held[pair]
        for pair, n in held.items():
            held_sum[pair] += bag * n
        if link.posterior_update == "all_pairs":
            pairs = sorted(votes)
            opportunities = [views_so_far - held_sum[p] for p in pairs]
        else:
            pairs = sorted(proposed)
            opportunities = [chances[p] for p in pairs]
        confidence = posterior_mean([votes[p] for p in pairs], opportunities)
        threshold = otsu_threshold(confidence, np.ones(len(pairs)), link.posterior_bins)
        taken = ({a for a, _ in held_by_seed}, {b for _, b in held_by_seed})
        keep = [
            i
            for i, (p, c) in enumerate(zip(pairs, confidence, strict=True))
            if c >= threshold and p[0] not in taken[0] and p[1] not in taken[1]
        ]
        rows = np.array([pairs[i] for i in keep], dtype=np.int64).reshape(-1, 2)
        chosen = one_to_one(rows[:, 0], rows[:, 1], confidence[keep])
        promoted = rows[chosen]
        result.anchors = {tuple(p): float(c) for p, c in zip(promoted.tolist(), confidence[keep][chosen], strict=True)}
        result.rounds.append((len(pairs), threshold, len(seeds) + len(promoted)))
        sizes.append((len(seeds) + len(promoted)) / len(source))
        last = sizes[-link.stop_rounds - 1 :]
        if len(last) > link.stop_rounds and max(abs(np.diff(last))) < link.stop_change:
            break
    result.recovery = _recovery((source, target), np.concatenate([seeds, promoted]), link, workers)
    result.taken_off = result.recovery >= link.takeoff_recovery
    return result


def evaluate(clouds, held_rows, link, workers):
    """What views of the given anchor rows propose, in their order."""
    search = backends.load(backends.choose(link.backend)).nearest
    k = list_length(link.csls_k, *map(len, clouds))

    def one(rows):
        anchors = clouds[0][rows[:, 0]], clouds[1][rows[:, 1]]
        return propose(clouds, anchors, k, link.bandwidth, lambda q, b, n: search(q, b, n, 1))

    with ThreadPoolExecutor(workers) as pool:  # the arithmetic runs outside the interpreter's lock
        return list(pool.map(one, held_rows))


def _recovery(clouds, pairs, link, workers) -> float:
    halves = [view.anchors for view in two_halves(len(pairs), link.random_seed)]
    again = 0
    for half, found in zip(halves, evaluate(clouds, [pairs[h] for h in halves], link, workers), strict=True):
        others = set(map(tuple, np.delete(pairs, half, axis=0).tolist()))
        again += len(others & set(zip(found.source.tolist(), found.target.tolist(), strict=True)))
    return again / len(pairs)
