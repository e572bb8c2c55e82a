"""Requests by an aiohttp client to an aiohttp server, which answers with what it got; connections stay open."""

from __future__ import annotations

import asyncio
import sys
import time
from urllib.parse import urlsplit

import aiohttp
import uvloop
from aiohttp import web

from benchmarks import environment
from benchmarks.contestant import unmeasured

PACKAGES = ("aiohttp",)
QUEUE = "/echo"
CONNECTIONS = 100
SETTINGS = f"client and server of aiohttp, {CONNECTIONS} connections at most, kept open"
LEAVES_OUT = dict.fromkeys(("submit", "fill"), "only answers are compared here")
WORKER = [sys.executable, "-m", "benchmarks.transports.contestants.bare_http"]
READY_WITHIN_S = 30.0
LOOK_EVERY_S = 0.05

submit = fill = unmeasured


def gather(count: int, payload: str) -> float:
    return uvloop.run(_exchanges(count, payload, times=1))[0]


def call(count: int, payload: str) -> list[float]:
    return uvloop.run(_exchanges(1, payload, times=count))


async def _exchanges(count: int, payload: str, *, times: int) -> list[float]:
    """Seconds from sending `count` requests at once to the last answer, each time."""
    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
    async with aiohttp.ClientSession(environment.http_url(), connector=connector) as session:
        await _answered(session)
        seconds = []
        for _ in range(times):
            began = time.perf_counter()
            async with asyncio.TaskGroup() as requests:
                for _ in range(count):
                    requests.create_task(_ask(session, payload.encode()))
            seconds.append(time.perf_counter() - began)
    return seconds


async def _ask(session: aiohttp.ClientSession, body: bytes) -> None:
    async with session.post(QUEUE, data=body) as answer:
        await answer.read()


async def _answered(session: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(READY_WITHIN_S):
        while True:
            try:
                return await _ask(session, b"there?")
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(LOOK_EVERY_S)


async def _echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read())


async def answer() -> None:
    """Until killed."""
    app = web.Application()
    app.router.add_post(QUEUE, _echo)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    parts = urlsplit(environment.http_url())
    await web.TCPSite(runner, parts.hostname, parts.port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(answer())
