"""How fast answers come over each way: each role in a process of its own, after a warm-up."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

from benchmarks import bare, environment, processes
from benchmarks.manager.contestants import OURS
from benchmarks.manager.managers import COMMAND, managers
from benchmarks.manager.talking import PAYLOAD_BYTES, described
from benchmarks.polling import wait_for_consumer
from benchmarks.transports import plan
from benchmarks.transports.contestants import BARE
from canoa.testing.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchmarks.manager.managers import Manager
    from benchmarks.transports.plan import Sizes

APP = f"{OURS}:app"
IN_FLIGHT = 100
"""Actions that our worker runs at once."""

WARM_UP = 500
"""Programs that were just started are slow at first."""
BEFORE = 20
"""Calls that are not counted."""


class Figures(Protocol):
    """By role: results per second, or the median milliseconds of a call. `name`: of our way, or of a bare client."""

    def __call__(
        self, name: str, roles: Iterable[str], env: Mapping[str, str], sizes: Sizes, /
    ) -> dict[str, float]: ...


def of_canoa(way: str, roles: Iterable[str], env: Mapping[str, str], sizes: Sizes) -> dict[str, float]:
    """The caller is on RabbitMQ, and so is the manager; the worker is where its way leads."""
    link = bare.Link(env[environment.BROKER])
    told = {"CANOA_MQTT": env[environment.MQTT]} if way == plan.MQTT else {}
    with ExitStack() as stack:
        broker_url, store_url = env[environment.BROKER], env[environment.STORE]
        [manager] = stack.enter_context(managers(link, broker_url, store_url, env=told))
        command = [COMMAND, "worker", APP, "--concurrency", str(IN_FLIGHT), "--log-level", "error"]
        stack.enter_context(processes.workers([*command, *_joining(way, env, manager)], 1, env=env))
        return {role: _figure(OURS, role, env, sizes) for role in roles}


def _joining(way: str, env: Mapping[str, str], manager: Manager) -> list[str]:
    match way:
        case plan.AMQP:
            return ["--broker", env[environment.BROKER]]
        case plan.MQTT:
            return ["--broker", "memory://", "--mqtt", env[environment.MQTT]]
        case _:
            return ["--broker", "memory://", "--manager", f"http://{LOOPBACK}:{manager.api_port}"]


def of_bare(name: str, roles: Iterable[str], env: Mapping[str, str], sizes: Sizes) -> dict[str, float]:
    """The same of a bare client and whoever answers it."""
    way, module = BARE[name]
    description = described(module, env)
    with processes.workers(description.worker, 1, env=env) as workers:
        if way == plan.AMQP:  # the others' clients wait for it by themselves
            wait_for_consumer(bare.Link(env[environment.BROKER]), description.queue, workers)
        return {role: _figure(module, role, env, sizes) for role in roles}


def _figure(module: str, role: str, env: Mapping[str, str], sizes: Sizes) -> float:
    count = dict(sizes.counts)[role]
    if role == plan.CALL:
        each: list[float] = processes.ask(module, role, BEFORE + count, PAYLOAD_BYTES, env=env)
        return statistics.median(each[BEFORE:]) * 1000
    processes.ask(module, role, WARM_UP, PAYLOAD_BYTES, env=env)
    seconds: float = processes.ask(module, role, count, PAYLOAD_BYTES, env=env)
    return count / seconds
