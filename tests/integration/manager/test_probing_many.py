"""Addresses of nodes with work out are looked at side by side, and not all at once: some say nothing for seconds."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web
from tests.contract.store.routed_words import begin
from tests.unit.manager.words import RESIZE, registration

from canoa.errors import BrokerUnreachable
from canoa.execution.plan import Plan, Step
from canoa.manager import probing
from canoa.testing.ports import LOOPBACK
from canoa.transports.amqp import AmqpTransport
from canoa.vocabulary import AMQP

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest
    from tests.integration.manager.town import Town

    from canoa.broker.port import Message
    from canoa.manager.nodes import Nodes
    from canoa.store.routed_port import NodeRow

PLAN = Plan(name=RESIZE, steps=(Step(name="resize", action=RESIZE),))


class Street:
    """Many addresses, of which one answers whenever it is told to."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: set[str] = set()
        self.waiting = 0
        self.most = 0
        self._may_answer = asyncio.Semaphore(0)

    async def on_look(self, request: web.Request) -> web.Response:
        self.asked.add(request.path)
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        try:
            await self._may_answer.acquire()
        finally:
            self.waiting -= 1
        return web.json_response({"status": "UP"})

    def has_asked(self, count: int) -> bool:
        return len(self.asked) >= count

    def answer_one(self) -> None:
        self._may_answer.release()


@asynccontextmanager
async def street() -> AsyncIterator[Street]:
    found = Street()
    app = web.Application()
    app.router.add_get("/{node}/actuator/health", found.on_look)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, 0).start()
    found.url = f"http://{LOOPBACK}:{runner.addresses[0][1]}"
    try:
        yield found
    finally:
        await runner.cleanup()


async def with_work(town: Town, street: Street, count: int, *others: Message) -> Nodes:
    """A manager, and nodes that have an address alone, each with a step that is out; and others that register."""
    manager = await town.start_manager()
    endpoints = [f"{street.url}/n{number}" for number in range(count)]
    await town.publish(*others, *(registration("", endpoint=each, instance="i1") for each in endpoints))
    count += len(others)
    await town.until(lambda: len(manager.catalogue.rows) == count)
    at_ms = manager.catalogue.now_ms()
    await town.store.advance([begin(f"t{number}", PLAN, at_ms=at_ms) for number in range(count)], manager.router)
    assert len(await town.store.queued_for()) == count
    return manager


async def test_addresses_are_looked_at_side_by_side(memory_town: Town) -> None:
    async with street() as found:
        await with_work(memory_town, found, 20)

        await memory_town.until(lambda: found.waiting == 20)

        assert len(found.asked) == 20


async def test_not_more_than_so_many_are_looked_at_together_and_all_of_them_are(
    memory_town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "MAX_LOOKS", 4)
    async with street() as found:
        await with_work(memory_town, found, 20)

        for count in range(4, 21):  # each answer makes room for one more
            await memory_town.until(partial(found.has_asked, count))
            found.answer_one()

        assert found.most == 4


class Away(AmqpTransport):
    """To a broker that cannot be asked."""

    async def listeners(self, node: NodeRow) -> int | None:
        raise BrokerUnreachable("it is away")


async def test_while_the_broker_is_away_addresses_are_looked_at_all_the_same(memory_town: Town) -> None:
    town = memory_town
    async with street() as found:
        manager = await with_work(town, found, 2, registration("a-worker", endpoint="", instance="i1"))
        manager.reaching.speak(AMQP, Away(town.broker))

    await town.until(lambda: len(town.lost) == 2)  # the street is gone

    assert {why for _, why in town.lost} == {"nobody listens on its queue"}
    assert all(node_id.startswith(found.url) for node_id, _ in town.lost)
