"""Events as a stream (`text/event-stream`) for one listener, for as long as both sides stay.

What a slow listener misses, the desk tells as `lagged`: nothing piles up here. A stream cannot be resumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from canoa.api.errors import TooMany
from canoa.api.stopping import Stopping
from canoa.wire.event import Event

KEEP_ALIVE_S: Final = 15.0
"""A comment after this long without an event: proxies cut what is silent for a minute."""

MAX_LISTENERS: Final = 100
"""Each costs a connection and a bounded queue."""

_HEADERS: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # nginx would wait for more

_encode = msgspec.json.Encoder().encode


class Listeners:
    """How many streams are open."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, *_: object) -> None:
        self.count -= 1

    def require_room(self) -> None:
        if self.count >= MAX_LISTENERS:
            raise TooMany(f"{self.count} listeners already follow the events; end one of them, or try again later")


class EventStream(Response):
    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[Event, None], *, listeners: Listeners, stopping: Stopping) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]  # it has no end
        self._events = events
        self._listeners = listeners
        self._stopping = stopping
        self._number = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._listeners:
            sending = asyncio.create_task(self._send_all(send), name="api.events")
            leaving = asyncio.create_task(_disconnected(receive), name="api.events.leaving")
            try:
                await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
            finally:
                leaving.cancel()
                sending.cancel()
                with suppress(asyncio.CancelledError):
                    await sending
                await self._events.aclose()

    async def _send_all(self, send: Send) -> None:
        # The desk listens from the first step of its generator on: then we say so, and not before. A refusal is also
        # raised there, while it can still become an answer.
        coming = self._next()
        await asyncio.sleep(0)
        try:
            if coming.done():
                coming.result()
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await _send_text(send, ": listening\n\n")
            with suppress(StopAsyncIteration, TimeoutError):
                async with self._stopping.interrupts():
                    while True:
                        coming = await self._send_next(coming, send)
        finally:
            coming.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration):
                await coming
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_next(self, coming: asyncio.Future[Event], send: Send) -> asyncio.Future[Event]:
        done, _ = await asyncio.wait([coming], timeout=KEEP_ALIVE_S)
        if not done:
            await _send_text(send, ": still here\n\n")
            return coming
        event = coming.result()
        self._number += 1
        # Events come from whoever may publish on the broker: a line break in a kind must not become a field of ours.
        kind = event.kind if event.kind.isidentifier() else "unknown"
        await _send_text(send, f"id: {self._number}\nevent: {kind}\ndata: {_encode(event).decode()}\n\n")
        return self._next()

    def _next(self) -> asyncio.Future[Event]:
        return asyncio.ensure_future(anext(self._events))


async def _send_text(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
