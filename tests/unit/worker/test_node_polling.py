"""How often a node that was told a manager's address looks whether that manager is up."""

from __future__ import annotations

import asyncio

from canoa.broker.memory import MemoryBroker
from canoa.vocabulary import Layer
from canoa.worker.health_page import HealthPage
from canoa.worker.identity import Identity
from canoa.worker.node import Node


class CountedPage(HealthPage):
    looks = 0

    async def is_up(self) -> bool:
        self.looks += 1
        return True


class Time:
    """The event loop's, which stands still until a test moves it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._now_s = loop.time()
        loop.time = lambda: self._now_s  # type: ignore[method-assign]

    async def move(self, seconds: float) -> None:
        """And let run what is due by then."""
        self._now_s += seconds
        for _ in range(5):
            await asyncio.sleep(0)


async def test_a_node_looks_at_its_managers_page_every_three_seconds() -> None:
    broker, page = MemoryBroker(), CountedPage("manager.example", 8420, "/actuator/health", None)
    await broker.open()
    identity = Identity(node_id="gw-7", is_made_up=False, layer=Layer.FOG, site="", labels={}, policies={})
    node = Node(broker, identity, load=lambda: 0.0, closed=lambda: (), page=page)
    await node.join(lambda _: None, prefetch=1)
    time = Time(asyncio.get_running_loop())
    duties = [asyncio.create_task(duty) for duty in node.duties()]
    await time.move(0)
    looks = [page.looks]

    for seconds in (2.9, 0.1, 2.9, 0.1):
        await time.move(seconds)
        looks.append(page.looks)

    assert looks == [1, 1, 2, 2, 3]
    for duty in duties:
        duty.cancel()
    await asyncio.gather(*duties, return_exceptions=True)
    await node.leave()
    await broker.aclose()
