"""A node's way over HTTP: it says what is new as soon as it may, and one bad message takes no place of others."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
from tests.contract.broker.inbox import Inbox
from tests.integration.pool.pool import until
from tests.integration.routed.test_node_ways import Door

from canoa.broker.port import Message, Settlement
from canoa.testing.ports import LOOPBACK
from canoa.wire import sapparchi
from canoa.worker.uplinks import http
from canoa.worker.uplinks.http import HttpUplink
from canoa.worker.uplinks.http_door import MESSAGES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest
    from aiohttp import web

    from canoa.broker.port import Delivery, OnDelivery


class CountingDoor(Door):
    def __init__(self) -> None:
        super().__init__()
        self.registrations = 0

    async def _on_registration(self, request: web.Request) -> web.Response:
        self.registrations += 1
        return await super()._on_registration(request)


def said(**_: object) -> Message:
    body = sapparchi.Registration(node_id="gw-7")
    return Message(body=sapparchi.encode(body))


@asynccontextmanager
async def registered(door: Door, on_message: OnDelivery) -> AsyncIterator[tuple[HttpUplink, str]]:
    """And the address at which it takes messages."""
    listener = socket.create_server((LOOPBACK, 0))
    uplink = HttpUplink(listener, [door.url], node_id="gw-7", said=said, max_body_bytes=1000)
    await uplink.start(on_message)
    (duty,) = uplink.duties()
    running = asyncio.create_task(duty)
    await until(lambda: uplink.is_registered)
    try:
        yield uplink, f"http://{LOOPBACK}:{listener.getsockname()[1]}{MESSAGES}"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await uplink.aclose()


async def test_what_is_new_right_after_a_registration_is_not_left_to_the_next_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "POLL_EVERY_S", 3600.0)
    door = CountingDoor()
    async with door.open(), registered(door, Inbox()) as (uplink, _):
        uplink.renew()

        await until(lambda: door.registrations == 2)


async def test_a_message_that_is_not_taken_for_a_bug_of_ours_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_IN_HAND", 1)
    door, came = Door(), Inbox(Settlement.ACK)

    def take(delivery: Delivery) -> None:
        if delivery.message.body == b"bad":
            raise ZeroDivisionError
        came(delivery)

    async def status_of(body: bytes, address: str) -> int:
        async with session.post(address, data=body, headers={"Authorization": "Bearer t"}) as answer:
            return answer.status

    async with door.open(), registered(door, take) as (_, address), aiohttp.ClientSession() as session:
        statuses = [await status_of(body, address) for body in (b"bad", b"good")]

    assert statuses == [500, 202]
    assert came.bodies == [b"good"]
