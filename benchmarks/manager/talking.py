"""How fast results come: each role in a process of its own, after a warm-up."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from typing import TYPE_CHECKING

import msgspec

from benchmarks import bare, environment, processes
from benchmarks.contestant import Description
from benchmarks.manager import plan
from benchmarks.manager.contestants import OURS
from benchmarks.manager.managers import managers
from benchmarks.polling import wait_for_consumer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchmarks.manager.plan import Sizes

PAYLOAD_BYTES = 100
WARM_UP = 20


def described(module: str, env: Mapping[str, str]) -> Description:
    return msgspec.convert(processes.ask(module, "describe", env=env), Description)


def figures(module: str, roles: Iterable[str], env: Mapping[str, str], sizes: Sizes) -> dict[str, float]:
    """By role: results per second, or the median milliseconds of a call."""
    env = {**env, environment.RESULTS: "1"}
    description = described(module, env)
    link = bare.Link(env[environment.BROKER])
    with ExitStack() as stack:
        if module == OURS:
            stack.enter_context(managers(link, env[environment.BROKER], env[environment.STORE]))
        workers = stack.enter_context(processes.workers(description.worker, 1, env=env))
        wait_for_consumer(link, description.queue, workers)
        return {role: _figure(module, role, env, dict(sizes.counts)[role]) for role in roles}


def _figure(module: str, role: str, env: Mapping[str, str], count: int) -> float:
    if role == plan.CALL:
        each: list[float] = processes.ask(module, role, WARM_UP + count, PAYLOAD_BYTES, env=env)
        return statistics.median(each[WARM_UP:]) * 1000
    processes.ask(module, role, WARM_UP, PAYLOAD_BYTES, env=env)
    seconds: float = processes.ask(module, role, count, PAYLOAD_BYTES, env=env)
    return count / seconds
