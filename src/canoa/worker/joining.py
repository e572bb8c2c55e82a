"""What makes a worker a node, put together: its place among the nodes, the door of its queue, and how much it takes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from canoa.execution.prefetch import RunEstimate, deliveries_for, prefetch_for
from canoa.wire.compression_policy import DEFAULT_POLICY
from canoa.worker.answering import Answerer
from canoa.worker.node import Node
from canoa.worker.registration import State
from canoa.worker.routed import RoutedOffer
from canoa.worker.unicast import Unicast

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from canoa.broker.port import Broker, Delivery
    from canoa.wire.compression_policy import CompressionPolicy
    from canoa.worker.health_page import HealthPage
    from canoa.worker.node import Identity
    from canoa.worker.pooled import PoolOffer
    from canoa.worker.routed import RoutedDelivery
    from canoa.worker.settling import Settler
    from canoa.worker.uplinks.port import Uplink

PARTS_WEIGHT: Final = 0.05
"""Of the newest delivery in the mean of what one brings; remembers about the last 20."""


class Joined:
    """`concurrency`: of all lanes that its actions run in. `new_uplinks`: ways to managers besides the broker."""

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
        new_uplinks: Callable[[Node], Sequence[Uplink]] = lambda _: (),
    ) -> None:
        self.node = Node(broker, identity, load=lambda: in_progress() / concurrency, page=page)
        self._uplinks = new_uplinks(self.node)
        self._concurrency = concurrency
        self._estimate = RunEstimate()
        self._prefetch = prefetch_for(concurrency, self._estimate, None)
        self._deliveries = self._prefetch
        self._parts_mean = 1.0  # of one delivery
        answerer = Answerer(broker, settler, identity.node_id, compression=compression.rules.get(identity.layer))
        routed: dict[str, RoutedOffer] = {
            each.name: RoutedOffer(each, settler, answerer, queue=self.node.queue, estimate=self._estimate)
            for each in offers
        }
        self._unicast = Unicast(routed, answerer, settler, max_payload_bytes=offers[0].max_payload_bytes)

    @property
    def is_registered(self) -> bool:
        return self.node.state is State.REGISTERED or any(each.is_registered for each in self._uplinks)

    @property
    def refused(self) -> int:
        """Messages to this node that it found no action for."""
        return self._unicast.refused

    async def start(self, take: Callable[[RoutedOffer, RoutedDelivery], None]) -> None:
        """`take` gets what may run here."""

        def on_message(delivery: Delivery) -> None:
            parts = self._unicast.parts(delivery)
            self._parts_mean += PARTS_WEIGHT * (len(parts) - self._parts_mean)
            for part in parts:
                opened = self._unicast.open(part)
                if opened is not None:
                    take(*opened)

        await self.node.join(on_message, prefetch=self._prefetch)
        for uplink in self._uplinks:
            await uplink.start(on_message)

    def duties(self) -> list[Coroutine[Any, Any, None]]:
        """What runs as long as the node does; one that raises makes it deaf."""
        return [*self.node.duties(), *(duty for uplink in self._uplinks for duty in uplink.duties())]

    async def leave(self) -> None:
        """Say so, if anybody can hear it."""
        await asyncio.gather(self.node.leave(), *(uplink.leave() for uplink in self._uplinks))

    async def aclose(self) -> None:
        for uplink in self._uplinks:
            await uplink.aclose()
        await self.node.aclose()

    async def tune(self) -> None:
        """One queue brings all actions, so their mean decides."""
        self._prefetch = prefetch_for(self._concurrency, self._estimate, self._prefetch)
        wanted = deliveries_for(self._prefetch, self._parts_mean, self._deliveries)
        if wanted != self._deliveries:
            self._deliveries = wanted
            await self.node.consumer.set_prefetch(wanted)
