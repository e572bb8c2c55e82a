"""A shop whose tasks are kept, in the words of the tests."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from canoa import Canoa
from canoa.broker.port import Queue
from canoa.recorder.hosting import Hosted, hosting

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from canoa.broker.port import Broker, Delivery, Message

WITHIN_S = 20.0


class Keeping:
    """`app` with its actions; `start()` once they are defined."""

    def __init__(self, broker_url: str, folder: Path) -> None:
        self.app = Canoa("shop", broker=broker_url)
        self.store_url = f"sqlite:///{folder}/canoa.db"
        self._stack = AsyncExitStack()
        self.hosted: Hosted
        self._working: AsyncExitStack

    @property
    def desk(self) -> Any:
        return self.hosted.desk

    async def start(self) -> None:
        """A worker, and a recorder that goes after it."""
        self.hosted = await self._stack.enter_async_context(hosting(self.app, self.store_url))
        self._working = await self._stack.enter_async_context(AsyncExitStack())
        await self._working.enter_async_context(self.app.worker(drain_s=5))

    async def stop_worker(self) -> None:
        await self._working.aclose()

    async def another_recorder(self) -> Hosted:
        return await self._stack.enter_async_context(hosting(self.app, self.store_url))

    async def __aenter__(self) -> Keeping:
        return self

    async def __aexit__(self, *_: object) -> None:
        async with asyncio.timeout(WITHIN_S):
            await self.app.aclose()
            await self._stack.aclose()


async def eventually(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again, for a bounded time."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            if await is_so():
                return
            await asyncio.sleep(0.02)


async def heard(raw: Broker, queue: str) -> asyncio.Future[Message]:
    """The first message that comes to a queue of ours."""
    heard: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    def on_delivery(delivery: Delivery) -> None:
        delivery.settle()
        if not heard.done():
            heard.set_result(delivery.message)

    await raw.consume(queue, on_delivery, prefetch=1, topology=[Queue(name=queue, expires_s=60)])
    return heard
