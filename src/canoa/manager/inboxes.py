"""How many steps are out at each node, and which nodes have as many as they may: those get no more for now.

What is sent to a node waits in its own queue, session or hands, which managers do not declare and cannot bound; so what
is out there is bounded here. Routing asks, and counts, from any thread; ends are told by the event loop. Each manager
counts what it sends and hears itself; now and then the store says what is true of all.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING, Final

from canoa.errors import CanoaError
from canoa.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canoa.store.routed_port import RoutedStore
    from canoa.vocabulary import NodeId

log = get_logger(__name__)

LOOK_EVERY_S: Final = 2.0
IDLE_LOOK_EVERY_S: Final = 30.0
"""While nobody has a quarter of what it may have: to look costs the store a walk over all that is out."""

NEAR: Final = 4
"""From the fourth part on others may fill what we think is free: then it is looked at often."""


class Inboxes:
    """`limit`: steps that may be out at one node. `full` is replaced, never changed: any thread may read it."""

    def __init__(self, limit: int = sys.maxsize) -> None:
        self.limit = limit
        self.full: frozenset[NodeId] = frozenset()
        self._lock = threading.Lock()
        self._out: dict[NodeId, int] = {}
        self._since: dict[NodeId, int] | None = None  # what changed since the store was asked

    def sent(self, node_id: NodeId) -> None:
        with self._lock:
            self._change(node_id, 1)

    def ended(self, by_node: Mapping[NodeId, int]) -> None:
        """So many were answered, or are nobody's any more."""
        with self._lock:
            for node_id, count in by_node.items():
                self._change(node_id, -count)

    def forget(self, node_id: NodeId) -> None:
        with self._lock:
            self._out.pop(node_id, None)
            self.full -= {node_id}

    def why(self, node_id: NodeId) -> str:
        """Why it gets no more; empty: it may have some."""
        if node_id not in self.full:
            return ""
        out = self._out.get(node_id, 0)
        return (
            f"full: {out} steps are out at it, of node_inbox={self.limit}; it gets more once it answers, or they expire"
        )

    @property
    def is_near(self) -> bool:
        """Whether any may be full soon."""
        with self._lock:
            return any(NEAR * out >= self.limit for out in self._out.values())

    def begin_look(self) -> None:
        """The store is being asked: what changes from now on may be in its answer, or not."""
        with self._lock:
            self._since = {}

    def end_look(self, counted: Mapping[NodeId, int]) -> None:
        """`counted`: what the store says is out. What is counted twice, or not at all, the next look puts right."""
        with self._lock:
            since, self._since = self._since or {}, None
            nodes = counted.keys() | since.keys()
            found = {node_id: counted.get(node_id, 0) + since.get(node_id, 0) for node_id in nodes}
            self._out = {node_id: out for node_id, out in found.items() if out > 0}
            self.full = frozenset(node_id for node_id, out in self._out.items() if out >= self.limit)

    def _change(self, node_id: NodeId, by: int) -> None:
        out = self._out.get(node_id, 0) + by
        self._out[node_id] = out = out if out > 0 else 0  # `max` takes twice as long
        if self._since is not None:
            self._since[node_id] = self._since.get(node_id, 0) + by
        if (out >= self.limit) != (node_id in self.full):
            self.full ^= {node_id}


class InboxKeeper:
    """Puts right what a manager counted, by what the store knows."""

    def __init__(self, inboxes: Inboxes, store: RoutedStore) -> None:
        self._inboxes = inboxes
        self._store = store
        self._told: frozenset[NodeId] = frozenset()

    async def run(self) -> None:
        looked_s, loop = 0.0, asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if loop.time() - looked_s < IDLE_LOOK_EVERY_S and not self._inboxes.is_near:
                continue
            looked_s = loop.time()
            try:
                await self.look()
            except CanoaError as exc:
                log.warning("inboxes_wait", reason=str(exc))

    async def look(self) -> None:
        self._inboxes.begin_look()
        self._inboxes.end_look(await self._store.queued_for())
        full = self._inboxes.full
        for node_id in full - self._told:
            log.warning("node_is_full", node_id=node_id, limit=self._inboxes.limit)
        self._told = full
