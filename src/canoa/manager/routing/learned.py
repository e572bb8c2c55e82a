"""A contextual bandit: learns how long answers take, by node and circumstances, and draws by what it believes.

The logarithm of the time is a sum: of the node's own level for the action, of what is out there already over the places
that the node has for it, and of what nodes of one layer and site share, the size of the input and the time of day. All
of it is uncertain, and levels drift. Each choice draws one guess per node from what is believed (Thompson sampling) and
takes the best: a node that is surely slow gets nothing, one of which little is known gets a try, and what was learnt
long ago becomes uncertain again.
"""

from __future__ import annotations

import threading
from math import cos, exp, log, sin, tau
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.manager.routing.drawing import NAMED, drawn
from canoa.manager.routing.drifting import Drifting
from canoa.manager.routing.port import Chosen, Rated, Strategy
from canoa.manager.routing.traffic import FAILED_TIMES, LONGEST_MS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from canoa.execution.step_moves import Need
    from canoa.manager.routing.port import Candidate, Seen
    from canoa.manager.routing.traffic import Traffic
    from canoa.vocabulary import ActionName, Layer, NodeId

    _Group: TypeAlias = tuple[ActionName, Layer, str]

LOOKED_AT: Final = 8
"""Drawn at random where there are more. More finds a quicker node, and takes longer."""

IMPOSED: Final = 2.0
"""How much what is out counts in a choice, over what it costs the request itself: whoever joins a queue also holds up
those behind. With 1, requests crowd before the quick nodes, and all are slower (by 10 to 15 % in the simulator)."""

MOST_PLACES: Final = log(1000)
"""The logarithm of how many attempts a node is thought to run at once. At first it is one: that spreads requests."""

STRANGER_VARIANCE: Final = 1.0
"""Of a node nobody has heard of, around others of its kind: it may well be three times as quick, or as slow."""

DRIFT_PER_CHOICE: Final = 0.0005
"""Variance that a level gains with every choice of the action: twice as slow a node is tried again after some hundred
choices. Higher finds sooner that it has recovered, and costs more tries."""

DRIFT_PER_MS: Final = 0.25 / 3_600_000
"""And by itself: where there are few choices, an hour changes a node by half."""

FAILED: Final = log(FAILED_TIMES)
LONGEST: Final = log(LONGEST_MS)
LARGEST: Final = log(7 * 86_400_000)
"""Of a level, and of what is shown: a week."""

MAX_KINDS: Final = 1_000
"""Actions by layer and site, whose names are others' to choose. Then all begin anew."""

KIND_WEIGHT: Final = 0.02
"""Of one node's level in what is thought of its kind."""

DAY_MS: Final = 86_400_000
KIB: Final = 1024.0


_NOTHING: Final[dict[ActionName, _Own]] = {}
_ALONE: Final = (1.0, 0.0)
"""Where nothing is out, only the level has to do with it."""


class _Own:
    """Of an action at a node: its level, and the logarithm of its places.

    A level follows its answers, and so the hour and the sizes that these came of. It is the level under `usual`, their
    average in just the same weights: what circumstances do is learnt, and expected, by how far they are from that. By
    themselves they would count twice, or what the hour does would be looked for where it only changes.
    """

    __slots__ = ("at_choice", "at_ms", "model", "usual")

    def __init__(self, begin: float | None, usual: Sequence[float]) -> None:
        level, variance = (0.0, 100.0) if begin is None else (begin, STRANGER_VARIANCE)
        self.model = Drifting((level, 0.0), (variance, 1.0), noise=0.1, is_level=True)
        self.usual = usual
        self.at_choice = self.at_ms = 0  # when something was learnt

    def expected(self, out: float) -> tuple[float, float, tuple[float, float]]:
        """With so much out there; the same with what it imposes; and how that changes with level and places."""
        level, places = self.model.weights
        if not out:  # as most of the time, and quicker
            return level, level, _ALONE
        waiting = out * exp(-places)
        return level + log(1 + waiting), level + log(1 + IMPOSED * waiting), (1.0, -waiting / (1 + waiting))

    def drift(self, choices: int, now_ms: int) -> float:
        """Since something was learnt; no more than makes it a stranger again."""
        if not self.at_ms:
            return 0.0
        gained = (choices - self.at_choice) * DRIFT_PER_CHOICE
        if now_ms > self.at_ms:
            gained += (now_ms - self.at_ms) * DRIFT_PER_MS
        return gained if gained < STRANGER_VARIANCE else STRANGER_VARIANCE

    def learn(
        self, features: tuple[float, float], error: float, circumstances: Sequence[float], shift: float, *, drift: float
    ) -> None:
        """`shift`: what these circumstances were expected to do."""
        share = self.model.learn(features, error, drift=drift)
        level, places = self.model.weights
        level += share * shift  # it moves to these circumstances, as `usual` does
        self.model.weights[:] = min(LARGEST, max(0.0, level)), min(MOST_PLACES, max(0.0, places))
        self.usual = _nearer(self.usual, circumstances, share)


class _Kind:
    """Of an action in a layer, at a site: what size and time of day do, and where a new node begins."""

    __slots__ = ("level", "model", "usual")

    def __init__(self) -> None:
        self.model = Drifting((0.0, 0.0, 0.0), (0.25, 0.25, 0.25), noise=0.25)
        self.level: float | None = None
        self.usual: Sequence[float] = ()

    def shift(self, circumstances: Sequence[float], usual: Sequence[float]) -> float:
        """What it does to the logarithm that circumstances are not as usual."""
        by_size, by_sine, by_cosine = self.model.weights  # of every node that is looked at: written out, it is quicker
        size, sine, cosine = circumstances
        usual_size, usual_sine, usual_cosine = usual
        return by_size * (size - usual_size) + by_sine * (sine - usual_sine) + by_cosine * (cosine - usual_cosine)

    def learn(self, circumstances: Sequence[float], usual: Sequence[float], error: float) -> None:
        self.model.learn([now - before for now, before in zip(circumstances, usual, strict=True)], error)

    def average(self, own: _Own) -> None:
        level = own.model.weights[0]
        if self.level is None:
            self.level, self.usual = level, own.usual
        else:
            self.level += KIND_WEIGHT * (level - self.level)
            self.usual = _nearer(self.usual, own.usual, KIND_WEIGHT)


class _Belief(msgspec.Struct, frozen=True, gc=False):
    """About the logarithm of the milliseconds. `rank`: the mean, with what it costs others."""

    rank: float
    mean: float
    spread: float
    out: float
    is_stranger: bool = False  # no answer ever came from there


class Learned:
    def __init__(self, traffic: Traffic, *, seed: int | None = None) -> None:
        self._traffic = traffic
        self._random = Random(seed)
        self._lock = threading.Lock()
        self._own: dict[NodeId, dict[ActionName, _Own]] = {}
        self._kinds: dict[_Group, _Kind] = {}
        self._choices: dict[ActionName, int] = {}
        self._levels: dict[ActionName, float] = {}  # of all its nodes: where a node of a new kind begins

    def choose(self, need: Need, candidates: Sequence[Candidate], *, avoid: frozenset[NodeId]) -> Chosen | None:
        looked_at = drawn(candidates, avoid, at_most=LOOKED_AT, random=self._random)
        if not looked_at:
            return None
        circumstances = _circumstances(need)
        with self._lock:
            self._choices[need.action] = self._choices.get(need.action, 0) + 1
            beliefs = self._beliefs(need, looked_at, circumstances)
        gauss = self._random.gauss
        guesses = [gauss(belief.rank, belief.spread) for belief in beliefs]
        best, *others = sorted(range(len(guesses)), key=guesses.__getitem__)
        why = f"learned: {_in_ms(beliefs[best])}, the best guess of {len(looked_at)}"
        if others:
            beside = (f"{looked_at[at].node_id} {_in_ms(beliefs[at])}" for at in others[:NAMED])
            why = f"{why}; {', '.join(beside)}"
        return Chosen(looked_at[best], why, (beliefs[best].out, *circumstances))

    def learn(self, seen: Seen) -> None:
        """Attempts without an answer teach nothing here: what a node owes and its circuit are seen elsewhere. One that
        failed counts as a long one: else a node where all fail at once would get them all."""
        if seen.took_ms is None or len(seen.context) != 4:
            return
        out, *circumstances = seen.context
        with self._lock:
            kind = self._kind_of(seen.action, seen.candidate)
            own = self._own_of(seen.action, seen.candidate, kind, circumstances)
            expected, _, features = own.expected(out)
            shift = kind.shift(circumstances, own.usual)
            error = log(1 + max(0, seen.took_ms)) - expected - shift
            if not seen.is_ok:
                error = max(error, min(FAILED, LONGEST - expected))
            elif own.at_ms:  # of the first answer, nobody knows what is the node and what the circumstances
                kind.learn(circumstances, own.usual, error)
            choices = self._choices.get(seen.action, 0)
            own.learn(features, error, circumstances, shift, drift=own.drift(choices, seen.now_ms))
            own.at_choice, own.at_ms = choices, seen.now_ms
            if seen.is_ok:
                kind.average(own)
                level = own.model.weights[0]
                known = self._levels.get(seen.action, level)
                self._levels[seen.action] = known + KIND_WEIGHT * (level - known)

    def rate(self, need: Need, candidates: Sequence[Candidate]) -> list[Rated]:
        circumstances = _circumstances(need)
        with self._lock:
            beliefs = self._beliefs(need, candidates, circumstances)
        ranked = sorted(zip(candidates, beliefs, strict=True), key=lambda pair: pair[1].rank)
        return [Rated(each, _ms(belief.mean), f"{_believed(belief)}, {belief.out:.0f} out") for each, belief in ranked]

    def forget(self, node_id: NodeId) -> None:
        with self._lock:
            self._own.pop(node_id, None)

    # --- Beliefs ------------------------------------------------------------------------------------------

    def _beliefs(self, need: Need, candidates: Sequence[Candidate], circumstances: Sequence[float]) -> list[_Belief]:
        kinds: dict[tuple[Layer, str], _Kind] = {}
        choices = self._choices.get(need.action, 0)
        beliefs = []
        for each in candidates:
            group = (each.layer, each.site)
            if group not in kinds:
                kinds[group] = self._kind_of(need.action, each)
            beliefs.append(self._belief(need, each.node_id, choices, kinds[group], circumstances))
        return beliefs

    def _belief(
        self, need: Need, node_id: NodeId, choices: int, kind: _Kind, circumstances: Sequence[float]
    ) -> _Belief:
        own = self._own.get(node_id, _NOTHING).get(need.action)
        out, oldest_ms = self._traffic.out_and_oldest_ms(need.action, node_id, need.now_ms)
        if own is None:
            level = self._levels.get(need.action, 0.0) if kind.level is None else kind.level
            usual = kind.usual or circumstances
            mean, rank, spread = level + log(1 + out), level + log(1 + IMPOSED * out), STRANGER_VARIANCE**0.5
        else:
            mean, rank, features = own.expected(out)
            spread = own.model.spread(features, own.drift(choices, need.now_ms))
            usual = own.usual
        shift = kind.shift(circumstances, usual)
        mean, rank = mean + shift, rank + shift
        least = log(1 + oldest_ms) if oldest_ms else 0.0
        return _Belief(
            rank if rank > least else least,  # for every node that is looked at: twice as quick as `max`
            mean if mean > least else least,
            spread,
            out,
            own is None,
        )

    def _kind_of(self, action: ActionName, candidate: Candidate) -> _Kind:
        group = (action, candidate.layer, candidate.site)
        kind = self._kinds.get(group)
        if kind is None:
            if len(self._kinds) >= MAX_KINDS:
                self._kinds.clear()
            kind = self._kinds[group] = _Kind()
        return kind

    def _own_of(self, action: ActionName, candidate: Candidate, kind: _Kind, circumstances: Sequence[float]) -> _Own:
        of_node = self._own.setdefault(candidate.node_id, {})
        own = of_node.get(action)
        if own is None:
            begin = self._levels.get(action) if kind.level is None else kind.level
            own = of_node[action] = _Own(begin, kind.usual or circumstances)
        return own


def _circumstances(need: Need) -> tuple[float, float, float]:
    of_day = need.now_ms % DAY_MS / DAY_MS * tau
    return log(1 + need.size_bytes / KIB), sin(of_day), cos(of_day)


def _nearer(usual: Sequence[float], circumstances: Sequence[float], share: float) -> Sequence[float]:
    return [before + share * (now - before) for before, now in zip(usual, circumstances, strict=True)]


def _in_ms(belief: _Belief) -> str:
    if belief.is_stranger:
        return "not tried yet"
    return f"{_ms(belief.mean - belief.spread):.0f} to {_ms(belief.mean + belief.spread):.0f} ms"


def _believed(belief: _Belief) -> str:
    return _in_ms(belief) if belief.is_stranger else f"{_in_ms(belief)} believed"


def _ms(logarithm: float) -> float:
    return exp(min(logarithm, LARGEST))


_port: type[Strategy] = Learned
