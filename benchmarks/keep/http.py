"""HTTP/1.1 on a bare connection that is kept alive: a client library would cost more than the server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from benchmarks.keep.upped import Served


class Connection:
    """To the API of a `canoa up`. Close it, or let the process end."""

    def __init__(self, served: Served, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._headers = (
            f"Host: 127.0.0.1:{served.port}\r\nAuthorization: Bearer {served.token}\r\n"
            "Content-Type: application/json\r\n"
        )

    @classmethod
    async def open(cls, served: Served) -> Self:
        return cls(served, *await asyncio.open_connection("127.0.0.1", served.port))

    async def ask(self, method: str, path: str, *, body: bytes = b"", status: bytes = b"200") -> bytes:
        """The body of the answer, which must have this status."""
        head = f"{method} {path} HTTP/1.1\r\n{self._headers}Content-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        return await self._answered(status)

    async def _answered(self, status: bytes) -> bytes:
        head = await self._reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        body = await self._reader.readexactly(size)
        if head.split(b" ", 2)[1] != status:
            raise AssertionError(f"{head!r} {body!r}")
        return body

    def close(self) -> None:
        self._writer.close()
