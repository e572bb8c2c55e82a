"""Everybody's view of how tasks ended: the final results that managers publish, counted by task."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from canoa.broker import topology
from canoa.broker.port import Binding, Queue
from canoa.wire import sapparchi

if TYPE_CHECKING:
    from collections.abc import Set

    from canoa.broker.port import Broker, Delivery

QUEUE = Queue(name="test.finals")
BOUND = Binding(exchange=topology.AMQ_TOPIC, queue=QUEUE.name, key=topology.FINAL_RESULTS)


class Final(NamedTuple):
    status: str
    body: bytes


class Finals:
    """Its queue outlives the broker's restarts, so none is missed."""

    def __init__(self, broker: Broker) -> None:
        self.of: defaultdict[str, Counter[Final]] = defaultdict(Counter)
        self._broker = broker
        self._came = asyncio.Event()

    async def open(self) -> None:
        await self._broker.open()
        await self._broker.consume(QUEUE.name, self._on_delivery, prefetch=1000, topology=[QUEUE, BOUND])

    async def aclose(self) -> None:
        await self._broker.aclose()

    def _on_delivery(self, delivery: Delivery) -> None:
        message = delivery.message
        final = Final(str(message.headers.get(sapparchi.STATUS)), message.body)
        self.of[message.correlation_id or ""][final] += 1
        delivery.settle()
        self._came.set()

    async def wait_for(self, task_ids: Set[str]) -> None:
        while not task_ids <= self.of.keys():
            self._came.clear()
            await self._came.wait()

    @property
    def contradictions(self) -> dict[str, Counter[Final]]:
        """Tasks that ended in more than one way."""
        return {task_id: said for task_id, said in self.of.items() if len(said) > 1}

    @property
    def repeated(self) -> int:
        """How many were only said once more: a manager killed between sending and writing that down."""
        return sum(said.total() - len(said) for said in self.of.values())
