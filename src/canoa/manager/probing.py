"""Finds nodes that are gone while work is out to them: nobody listens on their queue. One that may be there by another
way is not gone: its queue is a way that is closed.

The leading manager looks, and only where a step has been out for a while and nothing came back. The rule is pure:
looks and times in, a verdict out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from canoa.errors import CanoaError
from canoa.execution.proof import OUT
from canoa.logs import get_logger
from canoa.manager.registering import gone
from canoa.manager.sides import without
from canoa.vocabulary import AMQP, HTTP

if TYPE_CHECKING:
    from canoa.manager.catalogue import Catalogue
    from canoa.manager.following import Follower
    from canoa.store.routed_port import NodeRow, RoutedStore
    from canoa.transports.reaching import Reaching
    from canoa.vocabulary import NodeId

log = get_logger(__name__)

LOOK_EVERY_S: Final = 2.0
MAX_LOOKS: Final = 100
"""Side by side, of nodes with work out: an address of a machine that is gone takes two seconds to say nothing. More
find many that are gone sooner, and take connections from the messages to others."""
PATIENCE_S: Final = 4.0
"""A node that lost its link comes back within this, mostly. Shorter moves work sooner, and does more of it twice."""

Lose: TypeAlias = Callable[["NodeId", str], Awaitable[None]]
"""Give a node's steps to others; the text says why."""


class Looks(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of one queue."""

    was_heard: bool = False  # somebody listened there once: it is the node's queue
    deserted_s: float | None = None  # since when nobody does


def judge(looks: Looks, consumers: int | None, now_s: float) -> tuple[Looks, str | None]:
    """After one more look; `consumers` None: there is no such queue. The text: the node is gone, and why.

    A node of another make may have another queue, so nothing is said of one on which nobody was ever heard.
    """
    if consumers:
        return Looks(was_heard=True), None
    if not looks.was_heard:
        return looks, None
    if consumers is None:
        return looks, "its queue does not exist"
    if looks.deserted_s is None:
        return Looks(was_heard=True, deserted_s=now_s), None
    if now_s - looks.deserted_s < PATIENCE_S:
        return looks, None
    return looks, "nobody listens on its queue"


class Prober:
    def __init__(
        self,
        reaching: Reaching,
        store: RoutedStore,
        *,
        catalogue: Catalogue,
        follower: Follower,
        is_leading: Callable[[], bool],
        lose: Lose,
    ) -> None:
        self._reaching = reaching
        self._store = store
        self._catalogue = catalogue
        self._follower = follower
        self._is_leading = is_leading
        self._lose = lose
        self._looks: dict[NodeId, Looks] = {}  # of those with work out

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if not self._is_leading():
                continue
            try:
                await self.look()
            except CanoaError as exc:
                log.warning("probing_waits", reason=str(exc))

    async def look(self) -> None:
        """Those that had work out at the last look too are looked at: a quick step costs no look."""
        busy = [node_id for node_id in await self._store.queued_for() if node_id in self._catalogue.rows]
        before, self._looks = self._looks, {node_id: self._known(node_id) for node_id in busy}
        due = [node_id for node_id in busy if node_id in before]
        waiting, troubles = iter(due), list[CanoaError]()
        async with asyncio.TaskGroup() as looks:
            for _ in due[:MAX_LOOKS]:
                looks.create_task(self._look_at_each(waiting, troubles), name="manager.look")
        if troubles:
            log.warning("probing_waits", nodes=len(troubles), reason=str(troubles[0]))

    async def _look_at_each(self, waiting: Iterator[NodeId], troubles: list[CanoaError]) -> None:
        """As long as there are any: others take from the same. What is wrong with one says nothing about the next."""
        for node_id in waiting:
            try:
                await self._look_at(node_id)
            except CanoaError as exc:
                troubles.append(exc)

    def _known(self, node_id: NodeId) -> Looks:
        """A worker of ours has the queue that is named after it, or an address."""
        known, row = self._looks.get(node_id), self._catalogue.rows[node_id]
        return known or Looks(was_heard=bool(row.instance) and self._reaching.can_be_seen(row))

    async def _look_at(self, node_id: NodeId) -> None:
        now_s = self._catalogue.clock.monotonic_s()
        if self._catalogue.signs.age_s(node_id, now_s) < LOOK_EVERY_S:
            return  # it answers
        seen = await self._reaching.seen(node_id)
        row = self._catalogue.rows.get(node_id)
        if row is None or not seen:  # where nobody can look, nobody is missed
            return
        consumers = seen[AMQP] if AMQP in seen else seen.get(HTTP)
        if AMQP not in seen and not consumers and self._reaching.may_be_hidden(row):
            return
        self._looks[node_id], why = judge(self._looks[node_id], consumers, now_s)
        if why is not None and self._reaching.may_be_besides(row, AMQP, seen):
            await self._close_queue(row, why)
        elif why is not None:
            await self._give_up(node_id, why)

    async def _close_queue(self, row: NodeRow, why: str) -> None:
        """It is open again when the node says so."""
        log.warning("node_way_deserted", node_id=row.node_id, way=AMQP, reason=why)
        await self._follower.put([without(row, (AMQP,))])
        del self._looks[row.node_id]

    async def _give_up(self, node_id: NodeId, why: str) -> None:
        """Out of routing first, or its steps might come back to it. It is back with its next registration, or with the
        next canary that it answers."""
        log.warning("node_is_gone", node_id=node_id, reason=why)
        row = self._catalogue.rows.get(node_id)
        if row is not None and row.actions and row.proof not in OUT:
            await self._follower.put([gone(row, self._catalogue.now_ms())], why=why)
        await self._lose(node_id, why)
        del self._looks[node_id]
