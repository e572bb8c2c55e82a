"""A TCP proxy that misbehaves on request: links that are cut, stalled, slow, or deaf in one direction.

Put it between a client and a broker. It carries bytes and knows no protocol.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit, urlunsplit

from canoa.errors import SettingError
from canoa.testing.ports import LOOPBACK, free_port

if TYPE_CHECKING:
    from types import TracebackType

_CHUNK_BYTES = 64 * 1024
_PACES_PER_S = 20  # how finely a byte rate is cut up
_CONNECT_WITHIN_S = 5.0
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: on, zero seconds


class TcpProxy:
    """Carries connections from a loopback `port` of its own to the target, within `async with`.

    The methods below never wait; what they ask for holds for all links, those to come included, from this turn of the
    event loop on.
    """

    def __init__(self, target_host: str, target_port: int) -> None:
        self._target = (target_host, target_port)
        self._listener: socket.socket | None = None
        self._port = free_port()
        self._links: dict[asyncio.Task[None], _Link] = {}
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._drops_client = False
        self._delay_s = 0.0
        self._bytes_per_s: float | None = None

    async def __aenter__(self) -> Self:
        self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        if self._links:
            await asyncio.wait(self._links)

    @property
    def port(self) -> int:
        return self._port

    @property
    def link_count(self) -> int:
        """How many connections it holds."""
        return len(self._links)

    def via(self, url: str) -> str:
        """The same URL, leading through this proxy."""
        parts = urlsplit(url)
        login, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{login}{at}{LOOPBACK}:{self._port}"))

    # --- Trouble, and its end -----------------------------------------------------------------------

    def cut(self) -> None:
        """Reset every link and refuse new ones, until `restore`."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for task in self._links:
            self._reset(task)

    def restore(self) -> None:
        """Accept connections again, at the same port."""
        if self._listener is None:
            self._listen()

    def stall(self) -> None:
        """Go silently dead: connections stay, new ones are accepted, no byte and no end of a stream passes, until
        `resume`. Bytes sent meanwhile are held in the kernel's buffers."""
        self._flowing.clear()

    def drop_client_to_server(self) -> None:
        """Swallow what clients send, while what the server sends still arrives, until `resume`."""
        self._drops_client = True

    def slow(self, *, delay_s: float = 0.0, bytes_per_s: float | None = None) -> None:
        """Hold each chunk back for `delay_s`, and carry at most `bytes_per_s` per link and direction."""
        if delay_s < 0 or (bytes_per_s is not None and bytes_per_s <= 0):
            raise SettingError(f"a link cannot have delay_s={delay_s}, bytes_per_s={bytes_per_s}; both count upwards")
        self._delay_s = delay_s
        self._bytes_per_s = bytes_per_s

    def resume(self) -> None:
        """End `stall`, `drop_client_to_server` and `slow`. Links that lost bytes are reset: their stream has a hole."""
        self._drops_client = False
        self._delay_s = 0.0
        self._bytes_per_s = None
        for task, link in self._links.items():
            if link.has_hole:
                self._reset(task)
        self._flowing.set()

    # --- Inside -------------------------------------------------------------------------------------

    def _listen(self) -> None:
        listener = socket.create_server((LOOPBACK, self._port))  # reuses the address, so `restore` gets it back
        listener.setblocking(False)
        self._listener = listener
        asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except OSError:  # gave up before we came to it
            return
        client.setblocking(False)
        link = _Link(client)
        task = asyncio.create_task(self._carry(link), name=f"proxy[{self._port}].link")
        self._links[task] = link
        task.add_done_callback(self._forget)  # not a `finally` inside: a task cancelled before its first step has none

    def _reset(self, task: asyncio.Task[None]) -> None:
        self._links[task].reset_on_close()
        task.cancel()

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._links.pop(task).close()

    async def _carry(self, link: _Link) -> None:
        await self._flowing.wait()
        try:
            async with asyncio.timeout(_CONNECT_WITHIN_S):
                await asyncio.get_running_loop().sock_connect(link.server, self._target)
            async with asyncio.TaskGroup() as directions:
                directions.create_task(self._pump(link, to_server=True), name=f"proxy[{self._port}].to_server")
                directions.create_task(self._pump(link, to_server=False), name=f"proxy[{self._port}].to_client")
        except* (OSError, TimeoutError):
            link.reset_on_close()

    async def _pump(self, link: _Link, *, to_server: bool) -> None:
        try:
            await self._pump_until_end(link, to_server=to_server)
        except OSError:
            await self._flowing.wait()  # a reset is news, too: a stalled link does not pass it on
            raise

    async def _pump_until_end(self, link: _Link, *, to_server: bool) -> None:
        loop = asyncio.get_running_loop()
        source, sink = (link.client, link.server) if to_server else (link.server, link.client)
        while True:
            await self._flowing.wait()
            chunk = await loop.sock_recv(source, self._chunk_bytes())
            await self._flowing.wait()  # stalled while we waited for bytes: hold them, and the end of the stream too
            await self._pace(len(chunk))
            if not chunk:
                with suppress(OSError):  # the other side may have gone first
                    sink.shutdown(socket.SHUT_WR)
                return
            if to_server and self._drops_client:
                link.has_hole = True
                continue
            await loop.sock_sendall(sink, chunk)

    def _chunk_bytes(self) -> int:
        if self._bytes_per_s is None:
            return _CHUNK_BYTES
        return max(1, min(_CHUNK_BYTES, int(self._bytes_per_s / _PACES_PER_S)))

    async def _pace(self, size_bytes: int) -> None:
        pause_s = self._delay_s + (size_bytes / self._bytes_per_s if self._bytes_per_s else 0.0)
        if pause_s > 0:
            await asyncio.sleep(pause_s)


class _Link:
    """A client's connection and ours to the target."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.server.setblocking(False)
        for end in (self.client, self.server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.has_hole = False

    def reset_on_close(self) -> None:
        for end in (self.client, self.server):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)

    def close(self) -> None:
        self.client.close()
        self.server.close()
