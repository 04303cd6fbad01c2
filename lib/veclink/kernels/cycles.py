"""Loops of links among three clouds: which links they confirm, which they contradict, and which they call for.

Letters: n links (pairs of points), c closed loops, b broken ones, o open chains; p the confidence of a link, q = 1 - p.

A *chain* is two links at one point: x - y - z. What the third pair of clouds says of x and z makes it

    closed  x - z is a link. One loop of three links, which holds three chains.
    broken  one end is linked elsewhere: z - y - x - z', three links in a row that end at two points of one cloud.
    open    neither end has a link into the other's cloud.

A broken row of links is named by its *centre*, the link y - x, and so stands once however it is walked; in a triangle
of clouds a link is at most once the centre and once either end. A closed loop has no centre and stands once, too.

Two right links imply the third (Zach, Klopschitz and Pollefeys 2010, "Disambiguating visual relations using loop
constraints"). So a closed loop cannot have exactly one wrong link, and a broken one must have a wrong link. Beyond
that, a chain of right links stays unclosed with probability m (the third pair of clouds misses what it should find),
a chain with a wrong link is closed with probability kappa; an unclosed chain has an end that is linked elsewhere with
probability stray (right) or stray' (not right). The weights of the states of a loop are

    closed  none wrong: p p p (1 - m)   i, j wrong: kappa sqrt(q_i q_j) p_k   all wrong: kappa q q q   one wrong: 0
    broken  the product of p or q of its links, times, for each of its two chains, m stray if it is right and
            (1 - kappa) stray' if not; none wrong: 0
    open    the product of p or q of its links, times m (1 - stray) if it is right and (1 - kappa) (1 - stray') if not;
            the first is never the larger: that wrong chains mostly stray is learnt by believing those that do not

The two roots, here and in m = mu sqrt(1 - p p), are there because errors come together. Where an object is missing,
its two images in the other clouds go for the same neighbour: seen from i, the second error costs kappa and not kappa
q_j, seen from j kappa and not kappa q_i, and the root is the geometric mean of the two (never above q_i or q_j). And
what was hard to link in two pairs of clouds is missed more often in the third. With independent errors, kappa q_i q_j
and one m for all chains, links of closed loops came out too sure and those of open chains not sure enough (trial
draws).

That a link is in no loop is evidence, too: the ends of a wrong link are two objects, each of which may be linked on,
so wrong links are in chains more often. Confidences are right on the average before loops are looked at, so the sum
over a pair of clouds is kept: what its links in loops lose or win is given to the others, by one factor on their
odds.

Loops that share links are put together by belief propagation: in each loop a link counts with its confidence and what
its other loops say, as if those were independent. That is exact where a link is in one loop only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# How often a right chain that is not closed has an end that is linked elsewhere. Learning it from loops ends near 0,
# which makes broken loops too sure of themselves; in trial draws it was .1, and .2 gave the better confidences.
STRAY_RIGHT = 0.2
# Where learning begins.
KAPPA, STRAY_WRONG, MU = 0.2, 0.5, 0.3
MISSED_MOST = 0.95
# Links in no loop are moved by at most this in log odds: a factor of 4.
APART_MOST = float(np.log(4))
# No belief is nearer to 0 or 1, so that contradicting seeds have a verdict, too.
SURE = 1e-9
STEPS = 200
SETTLED = 1e-7

# The states of three links and of two: row s holds for each link whether it is right, the last state is all right.
_THREE = np.array([[s >> i & 1 for i in range(3)] for s in range(8)], dtype=bool)
_ENDS = _THREE[:, [0, 1]].all(axis=1), _THREE[:, [1, 2]].all(axis=1)  # where either chain of a broken loop is right
_TWO = np.array([[s >> i & 1 for i in range(2)] for s in range(4)], dtype=bool)


@dataclass(frozen=True)
class Loops:
    """Loops among n links, by link position.

    pair: (n,) number of the link's pair of clouds. closed: (c, 3). broken: (b, 3) an end, the centre, the other end.
    open: (o, 2); open_pair: (o,) the pair of clouds that would close it.
    """

    pair: Rows
    closed: Rows
    broken: Rows
    open: Rows
    open_pair: Rows

    def counts(self) -> tuple[Rows, Rows, Rows]:
        """(n,) each: closed loops, broken loops and open chains that a link is in."""
        closed, broken, opened = (
            np.bincount(rows.ravel(), minlength=len(self.pair)) for rows in (self.closed, self.broken, self.open)
        )
        return closed, broken, opened


@dataclass(frozen=True)
class Verdict:
    """What loops make of links.

    confidence: (n,) new. suggested: (o,) probability that both links of an open chain are right, so that its ends are
    one object. found: (pairs,) share of the right chains that a pair of clouds closes. kappa: the same of other chains.
    """

    confidence: Floats
    suggested: Floats
    found: Floats
    kappa: float


def judge(confidence: Floats, loops: Loops, kappa: float | None = None) -> Verdict:
    """New confidences from (n,) confidences; one of 0 or 1 stays.

    mu (for each pair of clouds) and stray' are learnt from all loops by expectation and maximisation, without any
    truth. kappa: None to learn it likewise.
    """
    model = _Model(confidence, loops, kappa)
    for _ in range(STEPS):
        if model.step() < SETTLED:
            break
    free = (confidence > 0) & (confidence < 1)
    apart = sum(loops.counts()) == 0
    new = np.where(free & ~apart, model.belief(), confidence)
    new = _sums_kept(confidence, new, free & apart, loops.pair)
    return Verdict(new, model.both_right()["open"][:, 0], model.found, model.kappa)


class _Model:
    """Beliefs on their way: `messages` holds, for each kind of loop, what it says of each of its links (log odds)."""

    def __init__(self, confidence: Floats, loops: Loops, kappa: float | None) -> None:
        self.loops, self.learn_kappa = loops, kappa is None
        self.prior = np.clip(confidence, SURE, 1 - SURE)
        self.pairs = int(max(loops.pair.max(initial=-1), loops.open_pair.max(initial=-1))) + 1
        self.kappa = KAPPA if kappa is None else kappa
        self.mu, self.stray, self.found = np.full(self.pairs, MU), STRAY_WRONG, np.ones(self.pairs)
        self.rows = {"closed": loops.closed, "broken": loops.broken, "open": loops.open}
        self.messages = {kind: np.zeros(rows.shape) for kind, rows in self.rows.items()}
        self.chains = _chains(self.prior, loops)

    def step(self) -> float:
        """Renew all messages, then the parameters; returns the largest change of either."""
        weights, change = self._weights(), 0.0
        beliefs = {kind: self._without(kind) for kind in self.rows}
        for kind, old in self.messages.items():
            new = _messages(weights[kind], beliefs[kind])
            change = max(change, float(np.abs(new - old).max(initial=0)))
            self.messages[kind] = (old + new) / 2  # half steps: beliefs that contradict each other would swing
        before = np.array([*self.mu, self.kappa, self.stray])
        self._learn()
        return max(change, float(np.abs(np.array([*self.mu, self.kappa, self.stray]) - before).max()))

    def belief(self) -> Floats:
        """(n,) probability that a link is right."""
        return _probability(self._log_odds())

    def both_right(self) -> dict[str, Floats]:
        """Probability that a chain is right: closed (c, 1), broken (b, 2), open (o, 1)."""
        weights = self._weights()
        joint = {kind: _joint(weights[kind], self._without(kind)) for kind in self.rows}
        ends = [joint["broken"][:, right].sum(axis=1) for right in _ENDS]
        return {"closed": joint["closed"][:, -1:], "broken": np.stack(ends, axis=1), "open": joint["open"][:, -1:]}

    def _log_odds(self) -> Floats:
        total = np.log(self.prior / (1 - self.prior))
        for kind, rows in self.rows.items():
            total += np.bincount(rows.ravel(), weights=self.messages[kind].ravel(), minlength=len(total))
        return total

    def _without(self, kind: str) -> Floats:
        """What is believed of a loop's links without that loop itself."""
        return _probability(self._log_odds()[self.rows[kind]] - self.messages[kind])

    def _weights(self) -> dict[str, Floats]:
        """Weight of each state of each loop, beside the product of its links' p or q."""
        missed = {k: np.clip(self.mu[c.pair] * c.hardness, SURE, MISSED_MOST) for k, c in self.chains.items()}
        found = np.exp(np.log(1 - missed["closed"]).mean(axis=1))
        broken = np.ones((len(self.loops.broken), 8))
        for side, right in enumerate(_ENDS):
            share = self.chains["broken"].share[:, side, None]
            stray = missed["broken"][:, side, None] * STRAY_RIGHT, (1 - self.kappa) * self.stray
            broken *= np.where(right, *stray) ** share
        broken[:, -1] = 0
        wrong = (1 - self.kappa) * (1 - self.stray)
        lost = np.minimum(missed["open"] * (1 - STRAY_RIGHT), wrong), wrong
        closed = closed_weights(self.prior[self.loops.closed], found, self.kappa)
        return {"closed": closed, "broken": broken, "open": np.where(_TWO.all(axis=1), *lost)}

    def _learn(self) -> None:
        """Each parameter as the share that it means among chains right or wrong; one of either kind more than seen."""
        both = self.both_right()
        right, wrong = self._chain_sums(both), self._chain_sums({kind: 1 - share for kind, share in both.items()})
        broken, opened = float(wrong["broken"].sum()), float(wrong["open"].sum())
        self.stray = (broken + 1) / (broken + opened + 2)
        hard = sum(
            self._chain_sums({kind: both[kind] * chain.hardness for kind, chain in self.chains.items()}).values()
        )
        lost = right["broken"] + right["open"]
        self.mu = (lost + 1) / (hard + 2)
        self.found = (right["closed"] + 1) / (right["closed"] + lost + 2)
        if self.learn_kappa:
            closed = float(wrong["closed"].sum())
            self.kappa = (closed + 1) / (closed + broken + opened + 2)

    def _chain_sums(self, weights: dict[str, Floats]) -> dict[str, Floats]:
        """(pairs,) sums of weights of chains of each kind, by the pair of clouds that could close them."""
        sums = {}
        for kind, chain in self.chains.items():
            weight = np.broadcast_to(weights[kind], chain.pair.shape) * chain.share
            sums[kind] = np.bincount(chain.pair.ravel(), weight.ravel(), self.pairs).astype(np.float64)
        return sums


@dataclass(frozen=True)
class _Chains:
    """The chains of one kind of loop, (loops, chains): pair of clouds that could close it, sqrt(1 - p p), and share."""

    pair: Rows
    hardness: Floats
    share: Floats


def _chains(p: Floats, loops: Loops) -> dict[str, _Chains]:
    """share: a chain that stands in two broken loops has half a say in each."""
    closed = loops.closed[:, [[0, 1], [0, 2], [1, 2]]]
    broken, opened = loops.broken[:, [[0, 1], [1, 2]]], loops.open[:, None, :]
    ends = np.sort(broken.reshape(-1, 2), axis=1)
    _, place, times = np.unique(ends, axis=0, return_inverse=True, return_counts=True)
    share = 1.0 / times[place.ravel()].reshape(-1, 2)
    # The chain at one end of a broken loop lacks a link of the pair of clouds that the other end joins.
    pairs = loops.pair[loops.closed[:, [2, 1, 0]]], loops.pair[loops.broken[:, [2, 0]]], loops.open_pair[:, None]
    parts = zip(("closed", "broken", "open"), (closed, broken, opened), pairs, strict=True)
    return {
        kind: _Chains(pair, np.sqrt(1 - p[at].prod(axis=2)), share if kind == "broken" else np.ones(pair.shape))
        for kind, at, pair in parts
    }


def _sums_kept(before: Floats, after: Floats, apart: Bools, pair: Rows) -> Floats:
    """(n,) confidences `after`; links `apart` moved by one log odds for each pair of clouds, to keep its sum."""
    pairs = int(pair.max(initial=-1)) + 1
    wanted = np.bincount(pair, before - np.where(apart, 0, after), pairs)
    log_odds, owner = np.log(before[apart] / (1 - before[apart])), pair[apart]
    low, high = np.full(pairs, -APART_MOST), np.full(pairs, APART_MOST)
    for _ in range(50):  # bisection: the sum grows with the move
        move = (low + high) / 2
        enough = np.bincount(owner, 1 / (1 + np.exp(-log_odds - move[owner])), pairs) >= wanted
        low, high = np.where(enough, low, move), np.where(enough, move, high)
    moved = after.copy()
    moved[apart] = 1 / (1 + np.exp(-log_odds - ((low + high) / 2)[owner]))
    return moved


def closed_weights(p: Floats, rho: Floats, kappa: float) -> Floats:
    """(c, 8) weights of a closed loop's states beside the product of p or q; p: (c, 3), rho: (c,)."""
    q = 1 - p
    weights = np.zeros((len(p), 8))
    weights[:, 0], weights[:, -1] = kappa, rho
    for i, j in ((0, 1), (0, 2), (1, 2)):
        state = 1 << (3 - i - j)  # the third alone is right
        together = np.minimum(kappa * np.sqrt(q[:, i] * q[:, j]), np.minimum(q[:, i], q[:, j]))
        weights[:, state] = together / (q[:, i] * q[:, j])
    return weights


def _joint(weights: Floats, belief: Floats) -> Floats:
    """(f, states) probabilities of f loops' states."""
    states = _THREE if belief.shape[1] == 3 else _TWO
    joint = weights * np.where(states, belief[:, None, :], 1 - belief[:, None, :]).prod(axis=2)
    return np.asarray(joint / joint.sum(axis=1, keepdims=True), dtype=np.float64)


def _messages(weights: Floats, belief: Floats) -> Floats:
    """(f, links) log of how much likelier a loop is if a link is right, over its other links' states."""
    right, states = _joint(weights, belief), _THREE if belief.shape[1] == 3 else _TWO
    odds = np.stack([right[:, states[:, i]].sum(axis=1) for i in range(belief.shape[1])], axis=1)
    wrong = np.stack([right[:, ~states[:, i]].sum(axis=1) for i in range(belief.shape[1])], axis=1)
    tiny = np.finfo(np.float64).tiny
    ratio = np.log(np.maximum(odds, tiny)) - np.log(np.maximum(wrong, tiny)) - np.log(belief / (1 - belief))
    return np.asarray(np.clip(ratio, np.log(SURE), -np.log(SURE)), dtype=np.float64)


def _probability(log_odds: Floats) -> Floats:
    return np.asarray(np.clip(1 / (1 + np.exp(-log_odds)), SURE, 1 - SURE), dtype=np.float64)
