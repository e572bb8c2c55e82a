"""A first HTTP API beside a worker: whether it lives, and what it counts."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING

import uvicorn
from fastapi import FastAPI, Response
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from prometheus_client import CONTENT_TYPE_LATEST

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Iterator, Sequence

    from canoa.app import Canoa
    from canoa.worker.worker import Worker

CLOSE_WITHIN_S = 2
"""How long requests under way may take once the worker is drained."""


@dataclasses.dataclass(frozen=True)
class Health:
    """The process answers, and its worker runs."""

    status: str
    app: str
    node_id: str
    actions: list[str]
    in_progress: int
    uptime_s: float


def new_api(app: Canoa, worker: Worker, *, hosts: list[str]) -> FastAPI:
    """`hosts`: what the Host header may say; a page in a browser must not reach us under another name."""
    api = FastAPI(title=f"Canoa: {app.name}", version=version("canoa"))
    api.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts)

    @api.get("/healthz")
    async def healthz() -> Health:
        """Alive. Whether work can arrive is another question."""
        return Health(
            status="ok",
            app=app.name,
            node_id=worker.node_id,
            actions=list(app.actions),
            in_progress=worker.in_progress,
            uptime_s=round(time.time() - worker.started_s, 1),
        )

    @api.get("/metrics")
    async def metrics() -> Response:
        """For Prometheus."""
        return Response(worker.metrics(), media_type=CONTENT_TYPE_LATEST)

    return api


class _Server(uvicorn.Server):
    """Leaves signals to the program it is part of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving_api(
    app: Canoa, worker: Worker, listener: socket.socket, *, hosts: Sequence[str] = ()
) -> AsyncIterator[None]:
    """Serves inside the block, on a socket that already listens. `hosts`: names to answer to besides our own."""
    own = ["localhost", "127.0.0.1", "::1", "[::1]", listener.getsockname()[0]]
    config = uvicorn.Config(
        new_api(app, worker, hosts=[*own, *hosts]),
        log_config=None,
        lifespan="off",
        access_log=False,
        timeout_graceful_shutdown=CLOSE_WITHIN_S,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="api")
    try:
        yield
    finally:
        server.should_exit = True
        await serving
