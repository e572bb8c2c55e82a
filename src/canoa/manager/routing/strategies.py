"""Every way to choose a node, by its name; and what they share: what is out where, and how long answers take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canoa.logs import get_logger
from canoa.manager.routing.learned import Learned
from canoa.manager.routing.least_loaded import LeastLoaded
from canoa.manager.routing.port import Candidate, Seen
from canoa.manager.routing.power_of_two import PowerOfTwo
from canoa.manager.routing.round_robin import RoundRobin
from canoa.manager.routing.traffic import Traffic
from canoa.vocabulary import Routing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.execution.step_moves import Need
    from canoa.manager.routing.port import Chosen, Strategy
    from canoa.store.routed_port import Moved, NodeRow
    from canoa.vocabulary import ActionName, NodeId

log = get_logger(__name__)

_IN_TURNS: Final = Routing.ROUND_ROBIN  # see `outcome.OK`


class Strategies:
    """`default`: for actions that ask for none. `start`, `seed`: where round robin begins, and chance."""

    def __init__(self, default: Routing = _IN_TURNS, *, start: int = 0, seed: int | None = None) -> None:
        self.traffic = Traffic()
        self._default = default
        self.is_counting = False  # somebody looks: until then nobody need be told of ends
        self._learned = Learned(self.traffic, seed=seed)
        self.in_turns = RoundRobin(start)
        self._by_name: dict[Routing, Strategy] = {
            _IN_TURNS: self.in_turns,
            Routing.LEAST_LOADED: LeastLoaded(self.traffic, seed=seed),
            Routing.POWER_OF_TWO: PowerOfTwo(self.traffic, seed=seed),
            Routing.LEARNED: self._learned,
        }

    def of(self, wanted: Routing | None) -> Strategy:
        return self._by_name[wanted or self._default]

    def choose(
        self, wanted: Routing | None, need: Need, candidates: Sequence[Candidate], *, avoid: frozenset[NodeId]
    ) -> Chosen | None:
        """By the strategy that is wanted. One that fails must not keep steps from their nodes: then by turns."""
        try:
            return self.of(wanted).choose(need, candidates, avoid=avoid)
        except Exception:
            log.exception("strategy_failed", action=need.action, routing=self.name(wanted).value)
            return self.in_turns.choose(need, candidates, avoid=avoid)

    def name(self, wanted: Routing | None) -> Routing:
        return wanted or self._default

    def takes_turns(self, wanted: Routing | None) -> bool:
        """Whoever is next gets it, and nobody looks at what is out."""
        return self.name(wanted) is _IN_TURNS and not self.is_counting

    def sent(self, wanted: Routing | None, need: Need, node_id: NodeId, *, is_watched: bool = False) -> None:
        """Counted once somebody looks: round robin does not. `is_watched`: others do."""
        if is_watched or self.name(wanted) is not _IN_TURNS:
            self.is_counting = True
        if self.is_counting:
            self.traffic.sent(need.action, node_id, need.now_ms)

    def freed(self, action: ActionName, node_id: NodeId, now_ms: int) -> None:
        """An attempt was called off: there will be no answer that counts."""
        self.traffic.ended(action, node_id, took_ms=None, now_ms=now_ms)

    def ended(self, wanted: Routing | None, row: NodeRow, moved: Moved, *, is_ok: bool, now_ms: int) -> None:
        """An attempt at that node."""
        if moved.action is None:
            return
        self.traffic.ended(moved.action, row.node_id, took_ms=moved.took_ms, is_ok=is_ok, now_ms=now_ms)
        candidate = Candidate(node_id=row.node_id, layer=row.layer, site=row.site)
        self.of(wanted).learn(
            Seen(moved.action, candidate, now_ms, took_ms=moved.took_ms, is_ok=is_ok, context=moved.context)
        )

    def forget(self, node_id: NodeId) -> None:
        """Nobody knows it any more."""
        self.traffic.forget(node_id)
        self._learned.forget(node_id)
