"""Keeps the queue of final results at a bound: whoever listens may be away, and nobody may listen at all.

Not by an argument of the queue: clients declare it as published, without any, and one that differs is refused.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from canoa.broker import topology
from canoa.broker.port import Settlement
from canoa.errors import CanoaError
from canoa.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.port import Broker, Delivery

log = get_logger(__name__)

LOOK_EVERY_S: Final = 10.0
PREFETCH: Final = 500
DROP_WITHIN_S: Final = 10.0


class Trimmer:
    """`is_leading`: one manager does it for all."""

    def __init__(
        self, broker: Broker, *, is_leading: Callable[[], bool], most: int = topology.FINAL_MAX_LENGTH
    ) -> None:
        self._broker = broker
        self._is_leading = is_leading
        self._most = most

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if self._is_leading():
                try:
                    await self.trim()
                except (CanoaError, TimeoutError) as exc:
                    log.warning("final_results_not_trimmed", reason=str(exc))

    async def trim(self) -> int:
        """Drops the oldest of what is too much; says how many."""
        excess = (await self._broker.depth(topology.FINAL_RESULTS)).messages - self._most
        if excess <= 0:
            return 0
        dropping = _Dropping(excess)
        consumer = await self._broker.consume(
            topology.FINAL_RESULTS, dropping.on_delivery, prefetch=min(PREFETCH, excess)
        )
        try:
            async with asyncio.timeout(DROP_WITHIN_S):
                await dropping.done.wait()
        finally:
            await consumer.cancel()
            dropping.give_back()
        log.info("final_results_trimmed", dropped=excess)
        return excess


class _Dropping:
    def __init__(self, count: int) -> None:
        self.done = asyncio.Event()
        self._left = count
        self._too_many: list[Delivery] = []

    def on_delivery(self, delivery: Delivery) -> None:
        if self._left == 0:
            self._too_many.append(delivery)
            return
        delivery.settle()
        self._left -= 1
        if self._left == 0:
            self.done.set()

    def give_back(self) -> None:
        for delivery in reversed(self._too_many):
            delivery.settle(Settlement.REQUEUE)
