"""What API tests say things with: an API, and a caller who has the token."""

from __future__ import annotations

import secrets
import socket
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import httpx

from canoa.api.app import Served, new_api
from canoa.api.readiness import probing
from canoa.api.server import serving_api
from canoa.testing.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from canoa import Canoa
    from canoa.recorder.desk import Desk

TOKEN = secrets.token_urlsafe(24)
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


@asynccontextmanager
async def in_process(app: Canoa, desk: Desk | None) -> AsyncIterator[httpx.AsyncClient]:
    """The API without a server around it: quick to start and to end."""
    knowing = nullcontext() if desk is None or desk.tokens is None else desk.tokens.known.watching()
    async with probing(partial(app.new_broker, "readiness")) as readiness, knowing:
        api = new_api(Served(app=app, readiness=readiness, desk=desk), hosts=["localhost", "127.0.0.1"], token=TOKEN)
        transport = httpx.ASGITransport(api, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=AUTHORIZED) as client:
            yield client


@asynccontextmanager
async def listening(app: Canoa, desk: Desk | None) -> AsyncIterator[httpx.AsyncClient]:
    """As `canoa up` serves it, on a port."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        url = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
        async with (
            serving_api(app, listener, token=TOKEN, desk=desk),
            httpx.AsyncClient(base_url=url, headers=AUTHORIZED, timeout=20, verify=False) as client,
        ):
            yield client
