"""Canoa: one manager, one worker; single actions with `dispatch="routed"`, and plans."""

from __future__ import annotations

import asyncio
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from benchmarks import environment
from benchmarks.contestant import unmeasured
from canoa import Canoa
from canoa.broker import topology
from canoa.errors import NobodyManages, TaskRefused

if TYPE_CHECKING:
    from canoa.plan import Plan

PACKAGES = ("canoa",)
QUEUE = topology.action_queue_name("bench.echo")
SETTINGS = 'one manager, one worker --concurrency 100; dispatch="routed" with map and call; plans, called all at once'
LEAVES_OUT = dict.fromkeys(("submit", "fill"), "only results are compared here")
_COMMAND = str(Path(sys.executable).with_name("canoa"))
_APP = "benchmarks.manager.contestants.canoa:app"
WORKER = [_COMMAND, "worker", _APP, "--broker", environment.broker_url(), "--concurrency", "100"]
WIDTH = 10
REGISTERED_WITHIN_S = 30.0
LOOK_EVERY_S = 0.1

submit = fill = unmeasured

app = Canoa("bench", broker=environment.broker_url())


@app.action()
async def echo(payload: str) -> str:
    return payload


@app.action()
async def join(parts: dict[str, str]) -> str:
    return next(iter(parts.values()))


routed = echo.using(dispatch="routed")


@cache
def _chain() -> Plan:
    plan = app.plan("chain")
    plan.step(echo, plan.step(echo, plan.step(echo, plan.input["payload"])))
    return plan


@cache
def _fanout() -> Plan:
    plan = app.plan("fanout")
    first = plan.step(echo, plan.input["payload"])
    plan.step(join.name, after=[plan.step(echo, first) for _ in range(WIDTH)])  # it gets all they gave, by step
    return plan


# --- Roles ----------------------------------------------------------------------------------------------------


def gather(count: int, payload: str) -> float:
    return _staying().run(_gather(count, payload))


def call(count: int, payload: str) -> list[float]:
    return _staying().run(_call(count, payload))


def chain(count: int, payload: str) -> float:
    return _staying().run(_run(_chain(), count, payload))


def fanout(count: int, payload: str) -> float:
    return _staying().run(_run(_fanout(), count, payload))


async def _gather(count: int, payload: str) -> float:
    began = time.perf_counter()
    async for _ in routed.map([echo.args(payload) for _ in range(count)], in_flight=count):
        pass
    return time.perf_counter() - began


async def _call(count: int, payload: str) -> list[float]:
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        await routed.call(payload)
        seconds.append(time.perf_counter() - began)
    return seconds


async def _run(plan: Plan, count: int, payload: str) -> float:
    began = time.perf_counter()
    await asyncio.gather(*(plan.call(payload=payload) for _ in range(count)))
    return time.perf_counter() - began


@cache
def _staying() -> asyncio.Runner:
    """With a session that stays between turns, as the connections of others do."""
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    runner.run(app.__aenter__())
    runner.run(_until_known())
    return runner


async def _until_known() -> None:
    """The worker, to the manager: until then its actions are refused."""
    async with asyncio.timeout(REGISTERED_WITHIN_S):
        while not await _is_known():  # noqa: ASYNC110  # another process learns it
            await asyncio.sleep(LOOK_EVERY_S)


async def _is_known() -> bool:
    try:
        await routed.call("known?")
    except (TaskRefused, NobodyManages):
        return False
    return True
