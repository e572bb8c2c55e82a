"""Which MQTT a link speaks: 5 where the broker knows it, also after losses; 3.1.1 where it does not."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from tests.integration.broker.test_mqtt_link import TOPIC, Heard, linked, running

from canoa.broker.mqtt_address import MqttAddress
from canoa.broker.mqtt_client import MqttClient
from canoa.broker.port import Message
from canoa.testing.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from canoa.testing import MosquittoNode

WITHIN_S = 30.0
HASTY_S = 8.0
NEW, OLD = 5, 4
NEWS = Message(body=b"news", headers={"canoa-attempt": 1})


class Gatehouse:
    """Between a client and its broker: notes the version of every greeting, and hangs up on whom it is told to."""

    def __init__(self, target: MosquittoNode) -> None:
        self._target = target
        self.port = 0
        self.greetings: list[int] = []
        self._began_s = time.monotonic()
        self.took_s = 0.0
        self.hangs_up: Callable[[int], bool] = lambda _: False
        self._links: set[asyncio.Task[None]] = set()

    async def on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await self._carry(reader, writer)
        finally:
            self._links.discard(task)
            writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeting = await reader.read(4096)
        version = greeting[greeting.index(b"MQTT") + 4]
        self.greetings.append(version)
        if self.hangs_up(version):
            return
        inner_reader, inner_writer = await asyncio.open_connection(LOOPBACK, self._target.port)
        inner_writer.write(greeting)
        try:
            there, back = (
                asyncio.create_task(_copied(reader, inner_writer)),
                asyncio.create_task(_copied(inner_reader, writer)),
            )
            await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
        finally:
            there.cancel()
            back.cancel()
            inner_writer.close()

    def note_ready(self) -> None:
        self.took_s = time.monotonic() - self._began_s

    def cut(self) -> None:
        for link in self._links:
            link.cancel()


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


@asynccontextmanager
async def gatehouse(mosquitto: MosquittoNode) -> AsyncIterator[Gatehouse]:
    house = Gatehouse(mosquitto)
    async with await asyncio.start_server(house.on_client, LOOPBACK, 0) as server:
        house.port = server.sockets[0].getsockname()[1]
        try:
            yield house
        finally:
            house.cut()


@asynccontextmanager
async def client_at(house: Gatehouse) -> AsyncIterator[tuple[MqttClient, asyncio.Queue[None]]]:
    """With what it says when a link is ready."""
    ready: asyncio.Queue[None] = asyncio.Queue()

    async def on_ready() -> None:
        ready.put_nowait(None)

    address = MqttAddress(LOOPBACK, house.port, None, None, None)
    client = MqttClient(address, client_id="traveller", on_ready=on_ready)
    async with running(client.run()), asyncio.timeout(WITHIN_S):
        await ready.get()
        yield client, ready


async def test_a_link_that_reached_mqtt_5_once_keeps_it_however_often_it_is_lost_or_hung_up_on(
    mosquitto: MosquittoNode,
) -> None:
    heard = Heard()
    async with (
        linked(mosquitto, heard, TOPIC),
        gatehouse(mosquitto) as house,
        client_at(house) as (client, ready),
    ):
        house.cut()
        await ready.get()  # after a loss
        house.hangs_up = lambda _: len(house.greetings) < 4  # as a broker that is being started
        house.cut()
        await ready.get()

        client.post([TOPIC], NEWS, heard.on_outcome)
        await heard.until(lambda: bool(heard.came))

    assert house.greetings == [NEW] * 4
    assert heard.came[0][1].headers == NEWS.headers  # which only MQTT 5 can carry


async def test_a_broker_that_hangs_up_on_mqtt_5_is_spoken_to_in_the_older_one(mosquitto: MosquittoNode) -> None:
    heard = Heard()
    async with linked(mosquitto, heard, TOPIC), gatehouse(mosquitto) as house:
        house.hangs_up = lambda version: version == NEW
        async with client_at(house) as (client, _):
            house.note_ready()
            client.post([TOPIC], NEWS, heard.on_outcome)
            await heard.until(lambda: bool(heard.came))

    assert house.greetings == [NEW, OLD]
    assert house.took_s < HASTY_S  # the library alone would wait ten seconds for a welcome
    assert (heard.came[0][1].body, heard.came[0][1].headers) == (b"news", {})


async def test_a_broker_that_is_only_starting_is_still_spoken_to_in_mqtt_5(mosquitto: MosquittoNode) -> None:
    async with gatehouse(mosquitto) as house:
        house.hangs_up = lambda _: len(house.greetings) < 3
        async with client_at(house) as (client, _):
            assert client.tells_headers

    assert house.greetings == [NEW, OLD, NEW]
