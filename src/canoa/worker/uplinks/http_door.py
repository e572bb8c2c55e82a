"""Where a worker takes messages over HTTP: `POST /sapparchi/messages`, from managers that know its token."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final

from aiohttp import web

from canoa.wire import fields

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from canoa.broker.port import Message

MESSAGES: Final = "/sapparchi/messages"
HEALTH: Final = "/actuator/health"
MAX_FIELD_BYTES: Final = 64 * 1024
CLOSE_WITHIN_S: Final = 2.0


class HttpDoor:
    """`take` says whether there is room for one more. `token`: what a manager must show; None: it does not know us yet,
    and is asked to wait."""

    def __init__(
        self,
        listener: socket.socket,
        take: Callable[[Message], bool],
        *,
        token: Callable[[], str | None],
        max_body_bytes: int,
    ) -> None:
        self._listener = listener
        self._take = take
        self._token = token
        self._is_closed = False
        app = web.Application(client_max_size=max_body_bytes)
        app.router.add_post(MESSAGES, self._on_message)
        app.router.add_get(HEALTH, self._on_health)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=CLOSE_WITHIN_S,
            max_field_size=MAX_FIELD_BYTES,
            auto_decompress=False,
        )

    async def open(self) -> None:
        await self._runner.setup()
        await web.SockSite(self._runner, self._listener).start()

    def close(self) -> None:
        """Take nothing more that is new; others may have it."""
        self._is_closed = True

    async def aclose(self) -> None:
        await self._runner.cleanup()
        self._listener.close()

    async def _on_message(self, request: web.Request) -> web.Response:
        if self._is_closed:
            return _refused(503, "this node leaves")
        token = self._token()
        if token is None:
            return _refused(503, "this node is not registered yet")
        if not _shows(request, token):
            return _refused(401, "this node was given another token when it registered")
        message = fields.read(await request.read(), request.headers.items())
        if not self._take(message):
            return _refused(429, "this node has enough to do")
        return web.json_response({"taken": True}, status=202)

    async def _on_health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "DOWN" if self._is_closed else "UP"})


def _shows(request: web.Request, token: str) -> bool:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


def _refused(status: int, why: str) -> web.Response:
    headers = {"Retry-After": "1"} if status in (429, 503) else None
    return web.json_response({"error": {"type": "Refused", "message": why}}, status=status, headers=headers)
