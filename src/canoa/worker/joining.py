"""What makes a worker a node, put together: its place among the nodes, the door of its queue, and how much it takes."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from canoa.execution.prefetch import RunEstimate, deliveries_for, prefetch_for
from canoa.wire.compression_policy import DEFAULT_POLICY
from canoa.worker.answer_way import AnyWay, BrokerWay, HeardBrokerWay
from canoa.worker.answering import Answerer
from canoa.worker.ears import QueueEar
from canoa.worker.node import Node
from canoa.worker.own_ways import OwnWays
from canoa.worker.proving import OwnProof
from canoa.worker.recent import Recent
from canoa.worker.registration import State
from canoa.worker.routed import RoutedOffer
from canoa.worker.unicast import Unicast
from canoa.worker.uplinks.port import UplinkDelivery
from canoa.worker.waiting_here import WaitingHere

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from canoa.broker.port import Broker, Delivery
    from canoa.wire.compression_policy import CompressionPolicy
    from canoa.worker.ears import Ear
    from canoa.worker.health_page import HealthPage
    from canoa.worker.identity import Identity
    from canoa.worker.outbox import OutboxStats
    from canoa.worker.outbox_writer import OutboxWriter
    from canoa.worker.pooled import PoolOffer
    from canoa.worker.routed import RoutedDelivery
    from canoa.worker.settling import Settler
    from canoa.worker.uplinks.port import Uplink

PARTS_WEIGHT: Final = 0.05
"""Of the newest delivery in the mean of what one brings; remembers about the last 20."""

ROOMY_SHARE: Final = 4
"""Below a quarter of what may be in hand, acknowledgements are in no hurry: calls one after the other took a tenth
longer. A worker that is killed has up to 20 ms more of its work done again elsewhere, and those answers change
nothing."""


class Joined:
    """`concurrency`: of all lanes that its actions run in. `new_uplinks`: ways to managers besides the broker, the
    preferred one first; `has_broker`: managers are on that."""

    def __init__(
        self,
        broker: Broker,
        settler: Settler,
        offers: Sequence[PoolOffer],
        identity: Identity,
        *,
        concurrency: int,
        in_progress: Callable[[], int],
        compression: CompressionPolicy = DEFAULT_POLICY,
        page: HealthPage | None,
        quiet_s: float,
        new_uplinks: Callable[[Node], Sequence[Uplink]] = lambda _: (),
        has_broker: bool = True,
        outbox: OutboxWriter | None = None,
        always_keep: bool = False,
    ) -> None:
        self.node = Node(
            broker,
            identity,
            load=lambda: in_progress() / concurrency,
            closed=lambda: self._ways.closed(),
            page=page,
        )
        self._uplinks = new_uplinks(self.node)
        self._ways = OwnWays(self.node, self._uplinks, has_broker=has_broker)
        self._hears_by_queue = has_broker or not self._uplinks
        self._proof = OwnProof(broker, self.node, self._ear(broker, settler), quiet_s=quiet_s)
        self._concurrency = concurrency
        self._estimate = RunEstimate()
        self._prefetch = prefetch_for(concurrency, self._estimate, None)
        self._deliveries = self._prefetch
        self._parts_mean = 1.0  # of one delivery
        self._outbox = outbox
        self._settler = settler
        self._answer_way = self._new_answer_way(broker, has_broker=has_broker)
        self._answerer = answerer = Answerer(
            broker,
            settler,
            identity.node_id,
            way=self._answer_way,
            ahead_ms=lambda: self.node.ahead_ms,
            outbox=outbox,
            always_keep=always_keep,
            recent=Recent() if self._ways.are_several else None,
            compression=compression.rules.get(identity.layer),
        )
        self._waiting = waiting = WaitingHere()
        queue, estimate = self.node.queue, self._estimate
        routed: dict[str, RoutedOffer] = {
            each.name: RoutedOffer(each, settler, answerer, waiting=waiting, queue=queue, estimate=estimate)
            for each in offers
        }
        self._unicast = Unicast(
            routed,
            answerer,
            settler,
            on_canary=self._proof.on_canary,
            max_payload_bytes=offers[0].max_payload_bytes,
        )

    def _ear(self, broker: Broker, settler: Settler) -> Ear | None:
        """Of several uplinks each has the others behind it: managers see which of them hears."""
        if self._hears_by_queue:
            return QueueEar(broker, self.node, lambda: settler.in_hand)
        return self._uplinks[0].ear if len(self._uplinks) == 1 else None

    def _new_answer_way(self, broker: Broker, *, has_broker: bool) -> AnyWay:
        """Over the broker at last, also where no manager is heard there: it keeps answers until one comes."""
        if not self._uplinks:
            return AnyWay([BrokerWay(broker, self._is_roomy)])
        if not has_broker:
            return AnyWay(self._uplinks)
        first = HeardBrokerWay(broker, lambda: self.node.hears_managers, self._is_roomy)
        return AnyWay([first, *self._uplinks, BrokerWay(broker, self._is_roomy)])

    def _is_roomy(self) -> bool:
        """What is in hand is far from all that the broker brings without an acknowledgement."""
        return self._settler.in_hand * ROOMY_SHARE <= self._deliveries

    @property
    def is_registered(self) -> bool:
        return self.node.state is State.REGISTERED or any(each.is_registered for each in self._uplinks)

    @property
    def refused(self) -> int:
        """Messages to this node that it found no action for."""
        return self._unicast.refused

    @property
    def is_deaf(self) -> bool:
        return self._proof.is_deaf

    def duties(self) -> list[Coroutine[Any, Any, None]]:
        """What runs as long as the node does; one that raises makes it of no more use."""
        of_uplinks = [duty for uplink in self._uplinks for duty in uplink.duties()]
        of_ways = [self._ways.watch()] if self._ways.are_several else []
        return [*self.node.duties(), self._proof.run(), *of_uplinks, *of_ways]

    @property
    def absorbed(self) -> int:
        """Requests that came again, and did not run again."""
        return self._answerer.absorbed

    @property
    def outbox(self) -> OutboxStats | None:
        return None if self._outbox is None else self._outbox.stats

    def runs_as(self, request_id: str) -> str:
        """The request whose answer this one gets: mostly its own."""
        return self._answerer.requests.runs_as(request_id)

    async def open_outbox(self) -> None:
        """Before anything comes that it may know."""
        if self._outbox is not None:
            await self._outbox.open()

    async def close_outbox(self) -> None:
        """Once nothing is on its way any more."""
        self._answerer.sender.stop()
        if self._outbox is not None:
            await self._outbox.aclose()

    async def start(self, take: Callable[[RoutedOffer, RoutedDelivery], None]) -> None:
        """`take` gets what may run here."""

        def on_message(delivery: Delivery) -> None:
            if isinstance(delivery, UplinkDelivery) is not self._hears_by_queue:  # by the ear that it tries
                self._proof.heard()
            parts = self._unicast.parts(delivery)
            self._parts_mean += PARTS_WEIGHT * (len(parts) - self._parts_mean)
            for part in parts:
                opened = self._unicast.open(part)
                if opened is not None:
                    take(*opened)

        await self.node.join(on_message, prefetch=self._prefetch)
        await asyncio.gather(*(uplink.start(on_message) for uplink in self._uplinks))
        self._answerer.sender.start()

    async def leave(self) -> None:
        """Say so, if anybody can hear it. What waits for its time is given back then, to be sent to others."""
        await asyncio.gather(self.node.leave(), *(uplink.leave() for uplink in self._uplinks))
        self._waiting.end()

    async def close_uplinks(self) -> None:
        """Also those that were never started: their places are free then. One that fails over it holds up no other."""
        self._answer_way.close()  # first: what was not sent is kept
        async with AsyncExitStack() as closing:
            for uplink in self._uplinks:
                closing.push_async_callback(uplink.aclose)

    async def aclose(self) -> None:
        await self.close_uplinks()
        await self.node.aclose()

    async def tune(self) -> None:
        """One queue brings all actions, so their mean decides."""
        self._prefetch = prefetch_for(self._concurrency, self._estimate, self._prefetch)
        wanted = deliveries_for(self._prefetch, self._parts_mean, self._deliveries)
        if wanted != self._deliveries:
            self._deliveries = wanted
            await self.node.set_prefetch(wanted)
