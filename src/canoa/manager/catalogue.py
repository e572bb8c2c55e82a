"""A manager's copy of all nodes and their circuits. No I/O: `following.py` keeps it up to date.

It belongs to the event loop, except `pools.by_action` and `known_actions`: those are replaced, not changed, and any
thread may read them. What it knows of single nodes any thread may look at, too: rows are replaced, not changed.
"""

from __future__ import annotations

import enum
from collections import Counter
from typing import TYPE_CHECKING, Final

from canoa.clock import SystemClock
from canoa.execution import health
from canoa.execution.proof import OUT, Proof
from canoa.manager.pools import WHOLE_NODE, Pools
from canoa.manager.silence import Signs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from canoa.clock import Clock
    from canoa.manager.node_settings import NodeSettings
    from canoa.store.routed_port import BreakerRow, NodeRow
    from canoa.vocabulary import ActionName, NodeId


class Presence(enum.StrEnum):
    """What keeps a node out of routing, besides its health."""

    SILENT = "SILENT"  # no sign of life for too long
    UNREACHABLE = "UNREACHABLE"  # it has neither a queue nor an address that may be called
    LEFT = "LEFT"  # it said so, or its queue has nobody who listens
    DEAF = "DEAF"  # as `execution/proof.py` has it, like the next
    CUT_OFF = "CUT_OFF"
    DEAD = "DEAD"


_PROVEN_OUT: Final = {Proof.DEAF: Presence.DEAF, Proof.CUT_OFF: Presence.CUT_OFF, Proof.DEAD: Presence.DEAD}


class Catalogue:
    """`on_taken` hears of nodes that are new or changed, and what they were; `on_forgotten` of those that are known no
    more.
    `endpoint_refusal`: why a node's endpoint is not called; empty: it may be, or it has none."""

    def __init__(
        self,
        settings: NodeSettings,
        clock: Clock | None = None,
        *,
        on_taken: Callable[[NodeRow, NodeRow | None], None] = lambda *_: None,
        on_forgotten: Callable[[NodeId], None] = lambda _: None,
        endpoint_refusal: Callable[[NodeRow], str] = lambda _: "",
    ) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.rows: dict[NodeId, NodeRow] = {}
        self.breakers: dict[tuple[NodeId, str], BreakerRow] = {}  # those with failures
        self.signs = Signs(settings.silence_s)
        self.pools = Pools(settings.breaker)
        self.known_actions: frozenset[ActionName] = frozenset()
        self.left: dict[NodeId, None] = {}  # those without actions, the first to leave first
        self._on_taken = on_taken
        self._on_forgotten = on_forgotten
        self.endpoint_refusal = endpoint_refusal
        self._learnt_s: dict[NodeId, float] = {}
        self._silent: frozenset[NodeId] = frozenset()

    # --- Nodes --------------------------------------------------------------------------------------------

    def take(self, rows: Iterable[NodeRow]) -> None:
        """What the store says, or will: of two versions of a node the later counts, in whatever order they come."""
        for row in rows:
            known = self.rows.get(row.node_id)
            self.signs.read(row.node_id, row.seen_ms, now_ms=self.now_ms(), now_s=self.clock.monotonic_s())
            if known is None or row.version > known.version:
                self._take(row)
        self.pools.refresh()

    def keep_only(self, rows: Iterable[NodeRow], *, known_before: dict[NodeId, NodeRow]) -> None:
        """The store has these and no others; what came since it was asked stays."""
        there = {row.node_id for row in rows}
        for node_id, row in known_before.items():
            if node_id not in there and self.rows.get(node_id) is row:
                self._forget(node_id)
        self.known_actions = frozenset(action for row in self.rows.values() for action in offered(row))
        self.pools.refresh()

    def drop(self, node_ids: Iterable[NodeId]) -> None:
        """The store has them no more. What they offered is unknown from the next look at the whole on."""
        for node_id in node_ids:
            if node_id in self.rows:
                self._forget(node_id)
        self.pools.refresh()

    def _take(self, row: NodeRow) -> None:
        before, self.rows[row.node_id] = self.rows.get(row.node_id), row
        self._learnt_s[row.node_id] = self.clock.monotonic_s()
        self._silent -= {row.node_id}  # the next look says what is true
        self.left.pop(row.node_id, None)
        if not row.actions:
            self.left[row.node_id] = None
        self._on_taken(row, before)
        self._put_into_pools(row)
        if not self.known_actions.issuperset(offered(row)):
            self.known_actions |= offered(row)

    def _put_into_pools(self, row: NodeRow) -> None:
        if self._has_way(row) and row.proof not in OUT:
            self.pools.put(row)
        else:  # nothing can be sent to it, or it would not hear it
            self.pools.remove(row.node_id)

    def _has_way(self, row: NodeRow) -> bool:
        return bool(row.protocol) and not (row.has_address_alone and self.endpoint_refusal(row))

    def _forget(self, node_id: NodeId) -> None:
        del self.rows[node_id], self._learnt_s[node_id]
        self.left.pop(node_id, None)
        self.signs.forget(node_id)
        self.pools.remove(node_id)
        self._on_forgotten(node_id)

    def learnt_s_ago(self, node_id: NodeId) -> float:
        """Since its row came into this copy."""
        return self.clock.monotonic_s() - self._learnt_s[node_id]

    def now_ms(self) -> int:
        return int(self.clock.now_s() * 1000)

    # --- Silence ------------------------------------------------------------------------------------------

    def heard(self, node_id: NodeId, *, is_registration: bool = False) -> None:
        """A sign of life; of a node that nobody registered it means nothing."""
        if node_id in self.rows:
            now_ms, now_s = self.now_ms(), self.clock.monotonic_s()
            self.signs.heard(node_id, now_ms=now_ms, now_s=now_s, is_registration=is_registration)
            if node_id in self._silent:
                self.look_for_silence()

    @property
    def silent(self) -> frozenset[NodeId]:
        """At the last look, save those that were heard since."""
        return self._silent

    def look_for_silence(self) -> frozenset[NodeId]:
        """Take the silent out of routing, and those that are heard again in; gives those that are silent since now."""
        now_s = self.clock.monotonic_s()
        silent = self.signs.silent((row.node_id for row in self.rows.values() if row.actions), now_s)
        before, self._silent = self._silent, silent
        for node_id in silent - before:
            self.pools.remove(node_id)
        for node_id in before - silent:
            if node_id in self.rows:
                self._put_into_pools(self.rows[node_id])
        self.pools.refresh()
        return silent - before

    # --- Health -------------------------------------------------------------------------------------------

    def take_breakers(self, rows: Iterable[BreakerRow]) -> None:
        for row in rows:
            key = (row.node_id, row.action)
            if row.failures:
                self.breakers[key] = row
            else:
                self.breakers.pop(key, None)
            self.pools.put_breaker(row)
        self.pools.refresh()

    def circuits_of(self, node_id: NodeId) -> list[BreakerRow]:
        """All that ever failed there since it last worked."""
        row = self.rows.get(node_id)
        actions = (WHOLE_NODE, *(offered(row) if row else ()))
        return [self.breakers[node_id, each] for each in actions if (node_id, each) in self.breakers]

    def state(self, row: NodeRow, now_ms: int) -> str:
        """A `Presence`, or else its `Health`."""
        if not row.actions:
            return Presence.LEFT
        if not self._has_way(row):
            return Presence.UNREACHABLE
        if row.proof in OUT:
            return _PROVEN_OUT[Proof(row.proof)]
        if row.node_id in self._silent:
            return Presence.SILENT
        return health.health(self.breakers.get((row.node_id, WHOLE_NODE)), now_ms, self.settings.breaker)

    def counted(self) -> Counter[tuple[str, str]]:
        """How many nodes, by layer and state."""
        now_ms = self.now_ms()
        return Counter((row.layer.value, str(self.state(row, now_ms))) for row in self.rows.values())


def by_proof(rows: Iterable[NodeRow]) -> Counter[tuple[str, str]]:
    """How many nodes that have not left, by layer and proof."""
    return Counter((row.layer.value, str(row.proof)) for row in rows if row.actions)


def offered(row: NodeRow) -> frozenset[ActionName]:
    """What it offers, or did before it left: the limits of that stay in its row. Nothing, where nothing can be sent."""
    return frozenset(row.actions) | row.limits.keys() if row.protocol else frozenset()
