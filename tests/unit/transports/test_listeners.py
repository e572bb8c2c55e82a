"""Who takes what is sent to a node: asked by each of its ways, and one that is away says nothing about the others."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from tests.unit.manager.words import node

from canoa.broker import topology
from canoa.broker.memory import MemoryBroker, MemoryHub
from canoa.errors import BrokerUnreachable
from canoa.execution.endpoints import DEFAULT, parse_endpoints
from canoa.testing.ports import LOOPBACK
from canoa.transports.amqp import AmqpTransport
from canoa.transports.calling import Caller
from canoa.transports.http import HttpTransport
from canoa.transports.reaching import Reaching
from canoa.vocabulary import AMQP, HTTP, NodeId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from canoa.transports.port import NodeTransport

GW = NodeId("gw-7")


@asynccontextmanager
async def page() -> AsyncIterator[str]:
    """Where a node answers."""

    async def on_look(_: web.Request) -> web.Response:
        return web.json_response({"status": "UP"})

    app = web.Application()
    app.router.add_get("/actuator/health", on_look)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, 0).start()
    yield f"http://{LOOPBACK}:{runner.addresses[0][1]}"
    await runner.cleanup()


@asynccontextmanager
async def broker(*, is_away: bool = False) -> AsyncIterator[MemoryBroker]:
    made = MemoryBroker(MemoryHub())
    await made.open()
    if is_away:
        await made.aclose()
    yield made
    await made.aclose()


async def seen(broker: MemoryBroker, endpoint: str, *ways: str) -> dict[str, int | None]:
    row = node(GW, endpoint=endpoint, ways=ways, protocol=ways[0])
    caller = Caller(parse_endpoints("node_endpoints", DEFAULT))
    by_way: dict[str, NodeTransport] = {AMQP: AmqpTransport(broker), HTTP: HttpTransport(caller)}
    try:
        return await Reaching(by_way, row=lambda _: row).seen(GW)
    finally:
        await caller.aclose()


async def test_while_the_broker_is_away_the_address_is_asked() -> None:
    async with page() as url, broker(is_away=True) as away:
        assert await seen(away, url, AMQP, HTTP) == {HTTP: 1}


async def test_while_the_broker_is_away_an_address_where_nobody_is_says_so() -> None:
    async with page() as url:
        pass
    async with broker(is_away=True) as away:
        assert await seen(away, url, AMQP, HTTP) == {HTTP: 0}


async def test_while_the_broker_is_away_nothing_is_known_of_who_has_only_a_queue() -> None:
    async with broker(is_away=True) as away:
        with pytest.raises(BrokerUnreachable):
            await seen(away, "", AMQP)


async def test_queue_and_address_are_asked_each_for_itself() -> None:
    async with page() as url, broker() as there:
        assert await seen(there, url, AMQP, HTTP) == {AMQP: None, HTTP: 1}
        await there.declare(*topology.node_queue(GW))
        assert await seen(there, "http://127.0.0.1:9", AMQP, HTTP) == {AMQP: 0, HTTP: 0}
