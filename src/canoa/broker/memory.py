"""The broker port in process: a specification that runs, and what an embedded Canoa uses.

A `MemoryBroker` is one program's access, with consumers and deliveries of its own; the exchanges and queues behind it
are a `MemoryHub`, which several brokers may share as they would share a server. Nothing outlives the process.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from canoa.broker.memory_hub import TURN, MemoryHub
from canoa.broker.memory_queue import Entry, Subscription
from canoa.broker.port import Broker, Declaration, Delivery, Depth, OnDelivery, Publication, PublishOutcome, Settlement
from canoa.errors import BrokerUnreachable, CanoaError, SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["MemoryBroker", "MemoryConsumer", "MemoryDelivery", "MemoryHub"]

log = logging.getLogger(__name__)


class MemoryDelivery:
    """One message in our hands. `is_settled` also when it was taken back because its link ended."""

    __slots__ = ("_entry", "_hub", "_subscription", "exchange", "key", "message", "redelivered")

    def __init__(self, entry: Entry, subscription: Subscription, hub: MemoryHub) -> None:
        self.message: Final = entry.message
        self.exchange: Final = entry.exchange
        self.key: Final = entry.key
        self.redelivered: Final = entry.redelivered
        self._entry = entry
        self._subscription = subscription
        self._hub = hub

    @property
    def is_settled(self) -> bool:
        return self._entry not in self._subscription.held

    def settle(self, how: Settlement = Settlement.ACK) -> bool:
        return self._hub.settle(self._subscription, self._entry, how)

    def settle_through(self, how: Settlement) -> bool:
        return self._hub.settle_through(self._subscription, self._entry, how)


class MemoryConsumer:
    """Follows one queue by name: when that is deleted, it declares its topology and consumes again, or ends loudly."""

    def __init__(
        self,
        broker: MemoryBroker,
        queue: str,
        on_delivery: OnDelivery,
        *,
        prefetch: int,
        topology: Sequence[Declaration],
        on_recovered: Callable[[float], None] | None = None,
    ) -> None:
        self._broker = broker
        self._on_recovered = on_recovered
        self._queue = queue
        self._on_delivery = on_delivery
        self._prefetch = prefetch
        self._topology = tuple(topology)
        self._ended = asyncio.Event()
        self._error: CanoaError | None = None
        self._subscription = self._subscribe()

    @property
    def queue(self) -> str:
        return self._queue

    @property
    def is_listening(self) -> bool:
        return not self._ended.is_set()

    @property
    def is_done(self) -> bool:
        """Ended, with nothing left in hand."""
        return self._ended.is_set() and not self._subscription.held

    def settle_through(self, delivery: Delivery, how: Settlement = Settlement.ACK) -> bool:
        assert isinstance(delivery, MemoryDelivery)
        return delivery.settle_through(how)

    async def set_prefetch(self, prefetch: int) -> None:
        self._prefetch = _checked(prefetch)
        if not self._ended.is_set():
            self._broker.hub.set_prefetch(self._subscription, prefetch)

    async def cancel(self) -> None:
        if not self._ended.is_set():
            self._broker.hub.unsubscribe(self._subscription)
            self._ended.set()

    async def wait_ended(self) -> None:
        await self._ended.wait()
        if self._error is not None:
            raise self._error

    def release(self) -> None:
        """End because the broker object closes: nothing new comes, and all that is unsettled goes back."""
        if not self._ended.is_set():
            self._broker.hub.unsubscribe(self._subscription)
            self._ended.set()
        self._broker.hub.take_back(self._subscription)

    def _subscribe(self) -> Subscription:
        broker = self._broker
        broker.declare_now(self._topology)
        hub, on_delivery = broker.hub, self._on_delivery
        subscription = Subscription(
            hub.find(self._queue, broker),
            self._prefetch,
            on_entry=lambda entry: on_delivery(MemoryDelivery(entry, subscription, hub)),
            on_queue_gone=self._recover,
        )
        hub.subscribe(subscription)
        return subscription

    def _recover(self) -> None:
        if self._ended.is_set():
            return
        try:
            self._subscription = self._subscribe()
        except CanoaError as exc:
            log.error("consumer_ended", extra={"queue": self._queue, "error": str(exc)})
            self._error = exc
            self._ended.set()
        else:
            if self._on_recovered is not None:
                self._on_recovered(0.0)


class MemoryBroker:
    """Publishing is confirmed at once, since the hub has the message at once: there is no window to wait for, and the
    broker never blocks. A caller that publishes many gives way to consumers now and then.
    """

    def __init__(self, hub: MemoryHub | None = None) -> None:
        self.hub: Final = MemoryHub() if hub is None else hub
        self._is_open = False
        self._consumers: list[MemoryConsumer] = []

    async def open(self) -> None:
        self.hub.join(self)
        self._is_open = True

    async def aclose(self) -> None:
        self._is_open = False
        for consumer in self._consumers:
            consumer.release()
        self._consumers.clear()
        self.hub.leave(self)

    @property
    def is_linked(self) -> bool:
        return self._is_open

    @property
    def is_blocked(self) -> bool:
        return False

    async def declare(self, *declarations: Declaration) -> None:
        self.declare_now(declarations)

    def declare_now(self, declarations: Sequence[Declaration]) -> None:
        self._require_open()
        for declaration in declarations:
            self.hub.declare(declaration, self)

    async def depth(self, queue: str) -> Depth:
        self._require_open()
        found = self.hub.look(queue, self)
        return Depth(found.ready, len(found.consumers))

    async def delete_queue(self, queue: str) -> None:
        self._require_open()
        self.hub.delete(queue, self)

    async def purge(self, queue: str) -> int:
        self._require_open()
        return self.hub.find(queue, self).purge()

    def post(
        self, publication: Publication, on_outcome: Callable[[PublishOutcome], None], *, later: bool = False
    ) -> None:
        if self._is_open:
            self.hub.post(publication, on_outcome)
        else:
            asyncio.get_running_loop().call_soon(on_outcome, _not_open())

    async def publish(self, publication: Publication) -> None:
        self._require_open()
        outcome = self.hub.publish(publication)
        await asyncio.sleep(0)  # a publisher in a loop must not starve those who consume
        if outcome is not None:
            raise outcome

    async def publish_many(self, publications: Sequence[Publication]) -> list[PublishOutcome]:
        outcomes: list[PublishOutcome] = []
        for start in range(0, len(publications), TURN):
            for publication in publications[start : start + TURN]:
                outcomes.append(self.hub.publish(publication) if self._is_open else _not_open())
            await asyncio.sleep(0)
        return outcomes

    async def consume(
        self,
        queue: str,
        on_delivery: OnDelivery,
        *,
        prefetch: int,
        topology: Sequence[Declaration] = (),
        on_recovered: Callable[[float], None] | None = None,
    ) -> MemoryConsumer:
        self._require_open()
        consumer = MemoryConsumer(
            self, queue, on_delivery, prefetch=_checked(prefetch), topology=topology, on_recovered=on_recovered
        )
        self._consumers = [*(c for c in self._consumers if not c.is_done), consumer]
        return consumer

    def _require_open(self) -> None:
        if not self._is_open:
            raise _not_open()


def _not_open() -> BrokerUnreachable:
    return BrokerUnreachable("this memory broker is not open; open it, or use one that is")


def _checked(prefetch: int) -> int:
    if prefetch < 1:
        raise SettingError(f"prefetch is {prefetch}; a consumer needs room for at least 1 delivery")
    return prefetch


_port: type[Broker] = MemoryBroker
