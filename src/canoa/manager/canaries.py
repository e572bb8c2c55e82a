"""Sends canaries through nodes' own queues, and writes down what that proves: the leading manager does it for all.

What it means is decided in `execution/proof.py`. Verdicts are in the nodes' rows, so every manager has them. Answers
come to a queue of this manager's own, or by the way of all answers to any manager, which tells the others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.broker import topology
from canoa.broker.listeners import looked_at
from canoa.broker.port import Message, Publication
from canoa.errors import CanoaError, Undecodable, Unroutable
from canoa.execution import proof
from canoa.execution.proof import EVERY_S, OUT, Missed, Place, Proof, View
from canoa.logs import get_logger
from canoa.manager.sides import without
from canoa.manager.watched import Watch, is_watched, place
from canoa.vocabulary import AMQP, NodeId
from canoa.wire import sapparchi
from canoa.wire.canary import canary
from canoa.wire.sapparchi import NodeMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.port import Broker, Consumer, Delivery, PublishOutcome
    from canoa.manager.catalogue import Catalogue
    from canoa.manager.following import Follower
    from canoa.manager.watching import Watching
    from canoa.store.routed_port import NodeRow, RoutedStore
    from canoa.transports.reaching import Reaching

log = get_logger(__name__)

LOOK_EVERY_S: Final = 1.0
PREFETCH: Final = 1000

MAX_SENT: Final = 500
"""At one look. Whoever begins to lead a thousand nodes needs no more than a few seconds."""
MAX_JUDGED: Final = 100
"""At one look, each for a round trip: when a site is cut off, many are missed together."""

SETTLES_WITHIN_S: Final = 2.0
"""Between a node's registration and its listening, at most: it does both when its link comes back."""
SIGN_WITHIN_S: Final = 75.0
"""Of a node whose queue cannot be looked at: it registers every 50 s, as published."""

NOBODY_THERE: Final = frozenset({Place.MISSING, Place.DESERTED})

_SAID: Final = {
    Proof.DEAF: ("node_is_deaf", "what is sent to its queue is not answered"),
    Proof.CUT_OFF: ("node_is_cut_off", "nobody listens on its queue"),
    Proof.DEAD: ("node_is_dead", "nobody came back to its queue, or there is none"),
}


class Canaries:
    """`on_return` hears of nodes that hear again: what failed before says nothing about them."""

    def __init__(
        self,
        broker: Broker,
        store: RoutedStore,
        *,
        catalogue: Catalogue,
        follower: Follower,
        watching: Watching,
        reaching: Reaching,
        is_leading: Callable[[], bool],
        manager_id: str,
        on_return: Callable[[NodeId], None],
    ) -> None:
        self._broker = broker
        self._store = store
        self._catalogue = catalogue
        self._follower = follower
        self._watching = watching
        self._reaching = reaching
        self._is_leading = is_leading
        self._on_return = on_return
        self._queue = topology.canary_queue(manager_id)
        self._watches: dict[NodeId, Watch] = {}
        self._heard_s = float("-inf")  # anything on that queue
        self._is_wanted = asyncio.Event()
        self.consumer: Consumer | None = None
        self.counts: Counter[str] = Counter(dict.fromkeys(("sent", "answered", "missed"), 0))

    # --- Its life -----------------------------------------------------------------------------------------

    async def open(self) -> Consumer:
        self.consumer = await self._broker.consume(
            self._queue.name, self._on_delivery, prefetch=PREFETCH, topology=[self._queue]
        )
        return self.consumer

    async def aclose(self) -> None:
        with suppress(CanoaError):
            await self._broker.delete_queue(self._queue.name)

    async def run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._is_wanted.wait()
            self._is_wanted.clear()
            try:
                await self.look()
            except CanoaError as exc:
                log.warning("canaries_wait", reason=str(exc))

    async def look(self) -> None:
        if not self._is_leading():
            self._watches.clear()
            return
        self._follow()
        self._send()
        await self._judge()
        await self._write()

    # --- Who is watched -----------------------------------------------------------------------------------

    def _follow(self) -> None:
        now_s = self._now_s()
        wanted = {row.node_id: row for row in self._catalogue.rows.values() if is_watched(row)}
        for node_id in self._watches.keys() - wanted.keys():
            del self._watches[node_id]
        for node_id, row in wanted.items():
            watch = self._watches.get(node_id)
            if watch is None or watch.instance != row.instance:
                self._watches[node_id] = Watch(row, now_s, self._watching.answered_ms(node_id))
            else:
                self._read(row, watch, now_s)

    def _read(self, row: NodeRow, watch: Watch, now_s: float) -> None:
        """What others wrote, and what it answered."""
        if row.version != watch.version:
            watch.version = row.version
            if row.proof in OUT and row.proof != watch.written:
                self._tell(row, watch, proof.Doubted(Proof(row.proof)), now_s)
            else:
                self._tell(row, watch, proof.Returned(), now_s)
            watch.written = row.proof
        answered_ms = self._watching.answered_ms(row.node_id)
        if answered_ms is not None and answered_ms != watch.answered_ms:
            watch.answered_ms = answered_ms
            self._tell(row, watch, proof.Answered(is_canary=False), now_s)
        if watch.view.proof is Proof.CUT_OFF:
            self._tell(row, watch, proof.Ticked(), now_s)

    def _tell(self, row: NodeRow, watch: Watch, event: proof.Event, now_s: float) -> None:
        watch.view = proof.on(watch.view, event, now_s, grace_s=self._grace_s(row))

    # --- Sending ------------------------------------------------------------------------------------------

    def _send(self) -> None:
        now_s = self._now_s()
        times = ((proof.next_s(watch.view), each) for each, watch in self._watches.items())
        due = sorted((at_s, each) for at_s, each in times if at_s is not None and at_s <= now_s)
        for _, node_id in due[:MAX_SENT]:
            watch = self._watches[node_id]
            self._tell(self._catalogue.rows[node_id], watch, proof.Sent(), now_s)
            watch.is_sent()
            self.counts["sent"] += 1
            message = canary(node_id, watch.request_id, reply_to=self._queue.name)
            self._reaching.post(node_id, [message], partial(self._on_sent, node_id, watch))

    def _on_sent(self, node_id: NodeId, watch: Watch, _: range, outcome: PublishOutcome) -> None:
        watch.is_unroutable = isinstance(outcome, Unroutable)
        watch.is_taken = outcome is None or watch.is_unroutable
        row = self._catalogue.rows.get(node_id)
        if row is not None and not watch.is_taken:
            self._tell(row, watch, proof.NotSent(), self._now_s())

    # --- Hearing ------------------------------------------------------------------------------------------

    def _on_delivery(self, delivery: Delivery) -> None:
        delivery.settle()
        self._heard_s = self._now_s()
        try:
            answer = sapparchi.decode(delivery.message.body, NodeMessage)
        except Undecodable:  # from ourselves: now those that are missed can be judged
            self._is_wanted.set()
            return
        self.heard(answer.request_id)

    def heard(self, request_id: str) -> bool:
        """A canary was answered. False: it was not ours."""
        node_id = NodeId(sapparchi.canary_node(request_id) or "")
        watch, row = self._watches.get(node_id), self._catalogue.rows.get(node_id)
        if watch is None or row is None or watch.request_id != request_id:
            return False
        self.counts["answered"] += 1
        self._catalogue.heard(node_id)
        if watch.view.proof in OUT:
            self._is_wanted.set()
        self._tell(row, watch, proof.Answered(), self._now_s())
        watch.sends_anew(node_id)
        return True

    def heard_by_the_way(self, request_id: str) -> None:
        """Among the answers of steps: it may be any manager's canary."""
        if not self.heard(request_id):
            self._watching.canary_answered(request_id)

    # --- Judging ------------------------------------------------------------------------------------------

    async def _judge(self) -> None:
        now_s = self._now_s()
        overdue = [each for each, watch in self._watches.items() if watch.is_overdue(now_s)]
        sure = [each for each in overdue if self._watches[each].is_overdue(self._heard_s)]
        if len(sure) < len(overdue):
            self._listen_to_ourselves()
        busy: frozenset[NodeId] | None = None
        for node_id in sure[:MAX_JUDGED]:
            watch = self._watches[node_id]
            depth = await looked_at(self._broker, node_id)
            if depth is not None and depth.messages and depth.consumers and busy is None:
                busy = frozenset(await self._store.queued_for())
            row = self._catalogue.rows.get(node_id)
            if row is None or not watch.is_overdue(self._now_s()):
                continue  # meanwhile
            where = place(row, depth, is_unroutable=watch.is_unroutable)
            if where in NOBODY_THERE and await self._closes_queue(row):
                where = Place.HEARD  # by the next way, maybe
            elif self._catalogue.rows.get(node_id) is not row:
                continue  # it has said more meanwhile
            is_full = depth is not None and depth.messages > 0 and node_id in (busy or ())
            self.counts["missed"] += 1
            missed = Missed(place=where, is_full=is_full, shows_life=self._shows_life(watch.view, node_id, where))
            self._tell(row, watch, missed, self._now_s())

    async def _closes_queue(self, row: NodeRow) -> bool:
        """Where the node may be there by another way, its queue is a way that is closed, until it says otherwise."""
        if row.protocol != AMQP or len(row.open_ways) == 1:
            return False
        seen = await self._reaching.seen(row.node_id)
        if self._catalogue.rows.get(row.node_id) is not row or not self._reaching.may_be_besides(row, AMQP, seen):
            return False
        log.warning("node_way_deserted", node_id=row.node_id, way=AMQP, reason="a canary in its queue was missed")
        await self._follower.put([without(row, (AMQP,))])
        return True

    def _listen_to_ourselves(self) -> None:
        """Who hears nothing cannot tell who is deaf: our link may be cut, or we were stopped for a while. What comes
        through our own queue now came after all answers that were in time."""
        message = Message(body=b"", persistent=False, expiration_s=EVERY_S)
        self._broker.post(Publication(message=message, key=self._queue.name, mandatory=False), _ignored)

    def _shows_life(self, view: View, node_id: NodeId, where: Place) -> bool:
        """Though nobody listens on its queue, or that cannot be seen."""
        now_s = self._now_s()
        signs = self._catalogue.signs
        if where is Place.HIDDEN:
            return signs.age_s(node_id, now_s) < SIGN_WITHIN_S
        ago_s = signs.registered_s_ago(node_id, now_s)
        return SETTLES_WITHIN_S < ago_s < now_s - (view.sent_s or now_s)

    # --- Writing down ---------------------------------------------------------------------------------------

    async def _write(self) -> None:
        if not self._unwritten():
            return
        await self._follower.read_changes()  # or what another manager has just written would be undone
        self._follow()
        rows = self._unwritten()
        await self._follower.put(rows)
        for row in rows:
            self._on_written(row)

    def _unwritten(self) -> list[NodeRow]:
        rows = self._catalogue.rows
        found = [(rows[each], watch.view.proof) for each, watch in self._watches.items() if each in rows]
        return [msgspec.structs.replace(row, proof=known) for row, known in found if row.proof != known]

    def _on_written(self, row: NodeRow) -> None:
        watch = self._watches[row.node_id]
        before, watch.written = watch.written, row.proof
        watch.version = self._catalogue.rows[row.node_id].version
        if row.proof in OUT:
            event, why = _SAID[Proof(row.proof)]
            log.warning(event, node_id=row.node_id, reason=why)
        elif before in OUT:
            log.info("node_hears_again", node_id=row.node_id, was=before)
            self._on_return(row.node_id)

    def _grace_s(self, row: NodeRow) -> float:
        return self._catalogue.settings.grace_s if row.grace_s is None else row.grace_s

    def _now_s(self) -> float:
        return self._catalogue.clock.monotonic_s()


def _ignored(_: PublishOutcome) -> None:
    """It is sent again."""
