"""A request that comes with a trace (`traceparent`, as W3C has it) gives it to the tasks it submits."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from canoa.wire import trace


class JoinsTrace:
    """ASGI middleware. Every request runs in a context of its own, so nothing needs to be put back."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" else None
        trace.received.set(headers if headers is not None and trace.TRACEPARENT in headers else None)
        await self._app(scope, receive, send)
