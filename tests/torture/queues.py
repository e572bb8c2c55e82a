"""What waits on the broker: looked at from outside, by a connection of its own."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from canoa.broker import topology
from canoa.broker.port import Depth
from canoa.errors import QueueMissing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from canoa import Canoa
    from canoa.broker.port import Broker

LOOK_EVERY_S = 0.2


class Queues:
    """Every queue that the workers of an app declare."""

    def __init__(self, app: Canoa, broker: Broker) -> None:
        self._broker = broker
        self._actions = [topology.action_queue_name(name) for name in app.actions]
        self._suspects = [topology.suspect_queue_name(name) for name in app.actions]
        self._others = [*map(topology.rung_name, topology.RUNGS_S), topology.DEAD]

    async def wait_offered(self, within_s: float) -> None:
        """Until each action has a worker."""
        ends_at = time.monotonic() + within_s
        while not all([(await self._depth(name)).consumers for name in self._actions]):
            if time.monotonic() > ends_at:
                raise RuntimeError(f"no worker offers {', '.join(self._actions)} after {within_s:g} s")
            await asyncio.sleep(LOOK_EVERY_S)

    async def left(self, within_s: float) -> list[str]:
        """What is not empty, though given some time."""
        ends_at = time.monotonic() + within_s
        while waiting := await self._waiting():
            if time.monotonic() > ends_at:
                return [f"{count} messages are left in {name}" for name, count in waiting.items()]
            await asyncio.sleep(LOOK_EVERY_S)
        return []

    async def _waiting(self) -> dict[str, int]:
        names = [*self._actions, *self._suspects, *self._others]
        return {name: count for name in names if (count := (await self._depth(name)).messages)}

    async def _depth(self, name: str) -> Depth:
        try:
            return await self._broker.depth(name)
        except QueueMissing:
            return Depth(0, 0)


@asynccontextmanager
async def watched(app: Canoa) -> AsyncIterator[Queues]:
    broker = app.new_broker("torture")
    await broker.open()
    try:
        yield Queues(app, broker)
    finally:
        await broker.aclose()
