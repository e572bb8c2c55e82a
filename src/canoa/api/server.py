"""Serving the API beside whatever else the process does, on a socket that already listens."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Final

import uvicorn
from prometheus_client.registry import Collector

from canoa.api.app import Served, new_api
from canoa.api.readiness import probing
from canoa.app import Canoa
from canoa.recorder.desk import Desk
from canoa.worker.worker import Worker

CLOSE_WITHIN_S: Final = 2
"""How long requests under way may take once the server stops. Long polls and event streams end at once."""

KEEP_ALIVE_S: Final = 75
"""How long an idle connection stays open: longer than the pauses of a caller that asks once a minute."""

MAX_CONNECTIONS: Final = 2000
"""More are answered with 503: each costs memory, and a flood of them must not starve the worker beside us."""


class _Server(uvicorn.Server):
    """Leaves signals to the program it is part of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _knowing_tokens(desk: Desk | None) -> AbstractAsyncContextManager[object]:
    return nullcontext() if desk is None or desk.tokens is None else desk.tokens.known.watching()


@asynccontextmanager
async def serving_api(
    app: Canoa,
    listener: socket.socket,
    *,
    token: str,
    desk: Desk | None = None,
    worker: Worker | None = None,
    collectors: Sequence[Collector] = (),
    hosts: Sequence[str] = (),
) -> AsyncIterator[None]:
    """Serves inside the block. `token`: the admin's; the desk knows others. `hosts`: names to answer to besides our
    own. `collectors`: what else is counted in this process.

    Without a desk there are only the probes and the metrics. The block ends what waits (long polls, event streams) and
    gives other requests `CLOSE_WITHIN_S` to finish.
    """
    own = ["localhost", "127.0.0.1", "[::1]", listener.getsockname()[0]]
    async with probing(partial(app.new_broker, "readiness")) as readiness, _knowing_tokens(desk):
        served = Served(app=app, readiness=readiness, desk=desk, worker=worker, collectors=collectors)
        config = uvicorn.Config(
            new_api(served, hosts=[*own, *hosts], token=token),
            log_config=None,
            lifespan="off",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=CLOSE_WITHIN_S,
            limit_concurrency=MAX_CONNECTIONS,
        )
        server = _Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]), name="api")
        try:
            yield
        finally:
            served.stopping.set()
            server.should_exit = True
            await serving
