"""Which of the nodes that can run an action come into question for one attempt: by its placement, and by how each layer
is doing just now. Pure but for what it remembers; times come in. For any thread.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from canoa.manager import osmosis
from canoa.manager.osmosis import CALM

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import TypeAlias

    from canoa.execution.placement import Placement
    from canoa.execution.step_moves import Need
    from canoa.manager.osmosis import Tide
    from canoa.manager.routing.port import Candidate
    from canoa.manager.routing.traffic import Traffic
    from canoa.vocabulary import ActionName, Layer, NodeId

    _Groups: TypeAlias = tuple[tuple[Candidate, ...], ...]
    _Course: TypeAlias = tuple[
        ActionName, Layer, float | None, float | None, tuple[tuple[str, str], ...], tuple[str, ...]
    ]

K = TypeVar("K")
V = TypeVar("V")

LOOKED_AT: Final = 16
"""Nodes of a layer whose queues are looked at: more would make a choice slow where there are many."""

ANSWERS: Final = 200
LATELY_MS: Final = 30_000
LEAST_ANSWERS: Final = 10
"""How many answers a p95 is taken of, from how long ago, and from how many on it tells anything."""

P95_EVERY_MS: Final = 500
"""How often it is taken: it needs them sorted."""

MAX_CACHED: Final = 200
"""Placements with the candidates that they allow."""

MAX_REMEMBERED: Final = 10_000


class Placed(NamedTuple):
    candidates: Sequence[Candidate]
    why: str = ""  # where the preferred layer does not get it


class _Known(NamedTuple):
    """Candidates by layer, in the placement's order, as long as both are the same objects."""

    placement: Placement
    candidates: Sequence[Candidate]
    groups: _Groups


class Placer:
    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._lock = threading.Lock()
        self._known: dict[tuple[ActionName, int], _Known] = {}
        self._tides: dict[_Course, Tide] = {}
        self._answers: dict[tuple[ActionName, Layer], deque[tuple[int, int]]] = {}
        self._timed: set[ActionName] = set()  # those whose p95 somebody asked for
        self._p95s: dict[tuple[ActionName, Layer, int], tuple[int, float | None]] = {}

    def place(
        self,
        need: Need,
        candidates: Sequence[Candidate],
        placement: Placement,
        *,
        avoid: frozenset[NodeId] = frozenset(),
        sites: Collection[str] = (),
    ) -> Placed:
        """Those of the first layer that has room; of all that may, where none has. `sites`: where its input is."""
        groups = self._groups(need.action, candidates, placement)
        able = [near for each in groups if (near := _near(each, placement, sites, avoid))]
        passed: list[str] = []
        for group in able:
            tide = self._tide(need, group, placement, sites)
            if not tide.is_out:
                return Placed(group, f"since {', '.join(passed)}" if passed else "")
            passed.append(f"{group[0].layer.value} {'is slow' if tide.is_slow else 'has enough to do'}")
        if len(able) > 1:
            return Placed([each for group in able for each in group], "no layer has room")
        return Placed(able[0] if able else ())

    def ended(self, action: ActionName, layer: Layer, *, took_ms: int | None, now_ms: int) -> None:
        if took_ms is not None and action in self._timed:
            with self._lock:
                key = (action, layer)
                if key not in self._answers:
                    _put(self._answers, key, deque(maxlen=ANSWERS))
                self._answers[key].append((now_ms, took_ms))

    def tide(self, action: ActionName, layer: Layer, placement: Placement, sites: Collection[str] = ()) -> Tide:
        """As it was when somebody last asked, with this placement and these sites to be near to."""
        return self._tides.get(_course(action, layer, placement, sites), CALM)

    # --- Who may ------------------------------------------------------------------------------------------

    def _groups(self, action: ActionName, candidates: Sequence[Candidate], placement: Placement) -> _Groups:
        key = (action, id(placement))
        known = self._known.get(key)
        if known is not None and known.placement is placement and known.candidates is candidates:
            return known.groups
        fit = [each for each in candidates if placement.allows(each.layer, each.labels)]
        groups = (
            tuple(tuple(each for each in fit if each.layer is layer) for layer in placement.layers)
            if placement.layers
            else (tuple(fit),)
        )
        with self._lock:
            if len(self._known) >= MAX_CACHED:
                self._known.clear()
            self._known[key] = _Known(placement, candidates, groups)
        return groups

    # --- How a layer is doing -------------------------------------------------------------------------------

    def _tide(self, need: Need, group: Sequence[Candidate], placement: Placement, sites: Collection[str]) -> Tide:
        if not placement.is_watched:
            return CALM
        layer = group[0].layer
        key = _course(need.action, layer, placement, sites)
        with self._lock:
            before = tide = self._tides.get(key, CALM)
            if placement.spill_queue is not None:
                tide = osmosis.filled(tide, self._queue(group, need.now_ms), placement.spill_queue)
            if placement.spill_p95_s is not None:
                self._timed.add(need.action)
                p95_ms = self._p95_ms((need.action, layer, tide.since_ms), need.now_ms)
                tide = osmosis.slowed(tide, p95_ms, placement.spill_p95_s * 1000, need.now_ms)
            if tide is not before:
                _put(self._tides, key, tide)
        return tide

    def _queue(self, group: Sequence[Candidate], now_ms: int) -> float:
        looked_at = group[:: -(-len(group) // LOOKED_AT)]
        return sum(self._traffic.out(each.node_id, now_ms) for each in looked_at) / len(looked_at)

    def _p95_ms(self, key: tuple[ActionName, Layer, int], now_ms: int) -> float | None:
        """Of what was sent since the layer was last thought to be well, or not: what was slow before says nothing."""
        action, layer, since_ms = key
        at_ms, p95_ms = self._p95s.get(key, (0, None))
        if 0 <= now_ms - at_ms < P95_EVERY_MS:
            return p95_ms
        answers = self._answers.get((action, layer), ())
        lately = sorted(took for at, took in answers if 0 <= now_ms - at < LATELY_MS and at - took >= since_ms)
        p95_ms = lately[int(0.95 * len(lately))] if len(lately) >= LEAST_ANSWERS else None
        _put(self._p95s, key, (now_ms, p95_ms))
        return p95_ms


def _course(action: ActionName, layer: Layer, placement: Placement, sites: Collection[str]) -> _Course:
    """What has a tide of its own: other bounds and other nodes are another matter."""
    near = tuple(sorted(sites)) if placement.near else ()
    return action, layer, placement.spill_queue, placement.spill_p95_s, tuple(placement.labels.items()), near


def _put(known: dict[K, V], key: K, value: V) -> None:
    """Names are others' to choose: too many of them, and all begin anew."""
    if len(known) >= MAX_REMEMBERED and key not in known:
        known.clear()
    known[key] = value


def _near(
    group: Sequence[Candidate], placement: Placement, sites: Collection[str], avoid: frozenset[NodeId]
) -> Sequence[Candidate]:
    """None, where all of them are to be avoided: then another layer is better than one of them again."""
    if placement.near and sites:
        near = tuple(each for each in group if each.site in sites and each.node_id not in avoid)
        if near or placement.near == "require":
            return near
    return () if avoid and all(each.node_id in avoid for each in group) else group
