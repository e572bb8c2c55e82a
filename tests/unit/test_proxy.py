"""The proxy carries bytes faithfully, and misbehaves exactly as asked."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from canoa.errors import SettingError
from canoa.testing import TcpProxy, free_port
from canoa.testing.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SILENCE_S = 0.2  # long for loopback, short for a test: how long "nothing arrives" is watched
PATIENCE_S = 5.0


class Server:
    """Echoes what it gets, and can end its connections first."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.writers: set[asyncio.StreamWriter] = set()
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        try:
            while chunk := await reader.read(65536):
                self.received += chunk
                writer.write(chunk)
                await writer.drain()
        except ConnectionResetError:
            pass
        finally:
            self.ended.set()
            writer.close()

    def end_all(self, *, reset: bool) -> None:
        for writer in self.writers:
            if reset:
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class Client:
    """One connection, every read bounded."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def receive(self, size: int) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            return await self._reader.readexactly(size)

    async def ask(self, data: bytes) -> bytes:
        self.send(data)
        return await self.receive(len(data))

    async def hears_nothing(self) -> bool:
        """Neither a byte nor the end of the stream."""
        try:
            async with asyncio.timeout(SILENCE_S):
                await self._reader.read(1)
        except TimeoutError:
            return True
        return False

    async def was_reset(self) -> bool:
        return await self._end() == "reset"

    async def was_closed(self) -> bool:
        return await self._end() == "closed"

    async def _end(self) -> str:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return "byte" if await self._reader.read(1) else "closed"
        except ConnectionResetError:
            return "reset"

    def end(self) -> None:
        self._writer.close()


@asynccontextmanager
async def client_of(port: int) -> AsyncIterator[Client]:
    client = Client(*await asyncio.open_connection(LOOPBACK, port))
    try:
        yield client
    finally:
        client.end()


@pytest.fixture
async def server() -> Server:
    return Server()


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[TcpProxy]:
    port = free_port()
    listening = await asyncio.start_server(server.serve, LOOPBACK, port)
    async with listening, TcpProxy(LOOPBACK, port) as proxy:
        yield proxy
        server.end_all(reset=False)


async def test_bytes_pass_unchanged_in_both_directions(proxy: TcpProxy) -> None:
    data = bytes(range(256)) * 4096

    async with client_of(proxy.port) as client:
        assert await client.ask(data) == data


async def test_the_end_of_a_stream_passes(proxy: TcpProxy, server: Server) -> None:
    async with client_of(proxy.port) as client:
        await client.ask(b"hello")

    async with asyncio.timeout(PATIENCE_S):
        await server.ended.wait()


async def test_a_cut_resets_links_and_refuses_new_ones_until_restored(proxy: TcpProxy) -> None:
    async with client_of(proxy.port) as client:
        await client.ask(b"hello")

        proxy.cut()

        assert await client.was_reset()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(LOOPBACK, proxy.port)

    proxy.restore()
    async with client_of(proxy.port) as client:
        assert await client.ask(b"again") == b"again"


async def test_a_link_cut_before_it_was_carried_is_reset_too(proxy: TcpProxy) -> None:
    async with client_of(proxy.port) as client:
        proxy.cut()

        assert await client.was_reset()

    assert proxy.link_count == 0


async def test_a_stalled_link_holds_bytes_both_ways_and_passes_them_when_resumed(
    proxy: TcpProxy, server: Server
) -> None:
    async with client_of(proxy.port) as client:
        await client.ask(b"hello")

        proxy.stall()
        client.send(b"held")

        assert await client.hears_nothing()
        assert server.received == b"hello"

        proxy.resume()

        assert await client.receive(4) == b"held"


async def test_a_stalled_proxy_accepts_connections_and_is_silent_on_them(proxy: TcpProxy) -> None:
    proxy.stall()

    async with client_of(proxy.port) as client:
        client.send(b"held")
        assert await client.hears_nothing()

        proxy.resume()

        assert await client.receive(4) == b"held"


@pytest.mark.parametrize("reset", [False, True])
async def test_a_stalled_link_tells_nobody_that_the_other_side_is_gone(
    proxy: TcpProxy, server: Server, reset: bool
) -> None:
    async with client_of(proxy.port) as client:
        await client.ask(b"hello")

        proxy.stall()
        server.end_all(reset=reset)

        assert await client.hears_nothing()

        proxy.resume()

        assert await (client.was_reset() if reset else client.was_closed())


async def test_a_one_way_link_swallows_what_the_client_sends_but_carries_the_server(
    proxy: TcpProxy, server: Server
) -> None:
    async with client_of(proxy.port) as client:
        await client.ask(b"hello")

        proxy.drop_client_to_server()
        client.send(b"lost")
        for writer in server.writers:
            writer.write(b"heartbeat")

        assert await client.receive(9) == b"heartbeat"
        assert await client.hears_nothing()
        assert server.received == b"hello"


async def test_a_link_that_lost_bytes_is_reset_when_the_proxy_behaves_again(proxy: TcpProxy) -> None:
    async with client_of(proxy.port) as client:
        await client.ask(b"hello")
        proxy.drop_client_to_server()
        client.send(b"lost")
        assert await client.hears_nothing()

        proxy.resume()

        assert await client.was_reset()

    async with client_of(proxy.port) as client:
        assert await client.ask(b"again") == b"again"


async def test_a_slow_link_takes_at_least_its_delay_each_way(proxy: TcpProxy) -> None:
    async with client_of(proxy.port) as client:
        await client.ask(b"hello")
        proxy.slow(delay_s=0.1)
        started = time.monotonic()

        await client.ask(b"ping")

        assert time.monotonic() - started >= 0.2


async def test_a_narrow_link_carries_no_more_than_its_rate(proxy: TcpProxy) -> None:
    data = b"x" * 10_000
    async with client_of(proxy.port) as client:
        proxy.slow(bytes_per_s=50_000)
        started = time.monotonic()

        assert await client.ask(data) == data

        assert time.monotonic() - started >= len(data) / 50_000


@pytest.mark.parametrize(("delay_s", "bytes_per_s"), [(-1.0, None), (0.0, 0.0), (0.0, -5.0)])
async def test_a_link_that_cannot_exist_is_refused(proxy: TcpProxy, delay_s: float, bytes_per_s: float | None) -> None:
    with pytest.raises(SettingError, match="bytes_per_s"):
        proxy.slow(delay_s=delay_s, bytes_per_s=bytes_per_s)


async def test_an_absent_target_resets_the_client() -> None:
    async with TcpProxy(LOOPBACK, free_port()) as proxy, client_of(proxy.port) as client:
        assert await client.was_reset()


async def test_leaving_the_proxy_ends_its_links() -> None:
    server = Server()
    port = free_port()
    async with await asyncio.start_server(server.serve, LOOPBACK, port):
        async with TcpProxy(LOOPBACK, port) as proxy:
            client = Client(*await asyncio.open_connection(LOOPBACK, proxy.port))
            await client.ask(b"hello")

        assert await client.was_reset()
        assert proxy.link_count == 0
        client.end()


def test_a_url_through_the_proxy_keeps_everything_but_the_address() -> None:
    proxy = TcpProxy("broker.example", 5672)

    through = proxy.via("amqp://guest:p%40ss@broker.example:5672/my%2Fhost?heartbeat=5")

    assert through == f"amqp://guest:p%40ss@127.0.0.1:{proxy.port}/my%2Fhost?heartbeat=5"
