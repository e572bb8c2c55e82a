"""A crowd of bare nodes on MQTT 3.1.1, a connection each: each registers by the published wire, and again whenever a
manager says so.

`python -m benchmarks.transports.swarm <count>` goes on until it is killed. Each node is subscribed to the topic where
messages for it would come, and to the heartbeats; nobody sends them work. They do not listen for welcomes, which every
node would hear of every other.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
from typing import TYPE_CHECKING, Any, NoReturn, cast
from urllib.parse import unquote, urlsplit

import uvloop

from benchmarks import environment
from benchmarks.manager.swarm import node_id, registration
from canoa.broker import topology
from canoa.wire.topics import node_topics, spellings

if TYPE_CHECKING:
    from urllib.parse import SplitResult

AT_ONCE = 50
"""Connections that are being made."""

KEEP_ALIVE_S = 60
PING_EVERY_S = 30.0
CONNACK, PUBLISH, SUBACK = 0x20, 0x30, 0x90
PING = b"\xc0\x00"

HEARTBEATS = spellings(topology.MANAGER_AVAILABLE)[1]
REGISTER = spellings(topology.NODES_REGISTER)[1]


def short(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def packet(first: int, body: bytes) -> bytes:
    size, length = len(body), b""
    while True:
        size, digit = size >> 7, size & 0x7F
        length += bytes([digit | 0x80 if size else digit])
        if not size:
            return bytes([first]) + length + body


def connect(client_id: str, url: SplitResult) -> bytes:
    """With a clean session, and a login where the URL has one."""
    login = "" if url.username is None else unquote(url.username)
    flags = 0x02 | (0xC0 if login else 0)
    named = short(client_id) + (short(login) + short(unquote(url.password or "")) if login else b"")
    return packet(0x10, short("MQTT") + struct.pack(">BBH", 4, flags, KEEP_ALIVE_S) + named)


def subscribe(*topics: str) -> bytes:
    return packet(0x82, b"\0\x01" + b"".join(short(topic) + b"\x01" for topic in topics))


def publish(topic: str, body: bytes, number: int) -> bytes:
    return packet(0x32, short(topic) + struct.pack(">H", number) + body)


class Node(asyncio.Protocol):
    """`joined` is done once it is subscribed."""

    def __init__(self, number: int, url: SplitResult) -> None:
        self._number = number
        self._url = url
        self._unread = b""
        self._said = 0  # registrations
        self.joined = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(connect(node_id(self._number), self._url))

    def connection_lost(self, exc: Exception | None) -> None:
        raise ConnectionError(f"node {self._number} lost its connection") from exc

    def data_received(self, data: bytes) -> None:
        self._unread += data
        while (end := _whole(self._unread)) is not None:
            whole, self._unread = self._unread[:end], self._unread[end:]
            self._take(whole)

    def _take(self, whole: bytes) -> None:
        kind = whole[0] & 0xF0
        if kind == CONNACK:
            self._transport.write(subscribe(node_topics(node_id(self._number))[1], HEARTBEATS))
        elif kind == SUBACK:
            self.register(is_forced=False)
            self.joined.set_result(None)
        elif kind == PUBLISH and json.loads(self._body(whole))["forceRegister"]:
            self.register(is_forced=True)

    def _body(self, whole: bytes) -> bytes:
        """Of a heartbeat, which is short; acknowledged where the broker wants that."""
        quality = whole[0] >> 1 & 0x03
        begin = 4 + struct.unpack_from(">H", whole, _head(whole))[0] + _head(whole) - 2
        if quality:
            self._transport.write(packet(0x40, whole[begin : begin + 2]))
            begin += 2
        return whole[begin:]

    def register(self, *, is_forced: bool) -> None:
        self._said += 1
        number = self._said % 65_535 + 1
        body = registration(self._number, is_forced=is_forced, endpoint=f"device-{self._number}")  # no address
        self._transport.write(publish(REGISTER, body, number))

    def ping(self) -> None:
        self._transport.write(PING)


def _end(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> NoReturn:
    """One node that is gone would be missed by nobody: so all of them go."""
    loop.default_exception_handler(context)
    os._exit(1)


def _head(data: bytes) -> int:
    """Bytes before the body of a packet."""
    size = 1
    while data[size] & 0x80:
        size += 1
    return size + 1


def _whole(data: bytes) -> int | None:
    """Where the first packet ends; None: it is not whole."""
    length = shift = 0
    for at in range(1, len(data)):
        length |= (data[at] & 0x7F) << shift
        shift += 7
        if not data[at] & 0x80:
            return at + 1 + length if len(data) > at + length else None
    return None


async def main(count: int) -> None:
    url = urlsplit(environment.mqtt_url())
    room = asyncio.Semaphore(AT_ONCE)
    asyncio.get_running_loop().set_exception_handler(_end)

    async def joined(number: int) -> Node:
        async with room:
            loop = asyncio.get_running_loop()
            _, node = await loop.create_connection(lambda: Node(number, url), url.hostname, url.port)
            await node.joined
            return node

    nodes = await asyncio.gather(*map(joined, range(count)))
    while True:
        for node in nodes:
            node.ping()
            await asyncio.sleep(PING_EVERY_S / count)


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
