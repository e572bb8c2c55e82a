"""How fast results come: each role in a process of its own, after a warm-up. Calls, one after the other, are made in
turns, by clients that stay: what a call takes moves by a third from minute to minute, for everybody alike.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import msgspec

from benchmarks import bare, environment, processes
from benchmarks.contestant import Description
from benchmarks.manager import plan
from benchmarks.manager.contestants import OURS
from benchmarks.manager.managers import managers
from benchmarks.polling import wait_for_consumer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from benchmarks.manager.plan import Sizes
    from benchmarks.processes import Player

PAYLOAD_BYTES = 100
WARM_UP = 20


def described(module: str, env: Mapping[str, str]) -> Description:
    return msgspec.convert(processes.ask(module, "describe", env=env), Description)


def figures(module: str, roles: Iterable[str], env: Mapping[str, str], sizes: Sizes) -> dict[str, float]:
    """By role: results per second."""
    with _working(module, env) as told:
        return {role: _per_s(module, role, told, dict(sizes.counts)[role]) for role in roles}


@contextmanager
def caller(module: str, env: Mapping[str, str]) -> Iterator[Player]:
    """Makes calls, with a worker behind it, whenever it is asked to."""
    with _working(module, env) as told, processes.player(module, plan.CALL, PAYLOAD_BYTES, env=told) as player:
        yield player


def call_ms(player: Player, count: int) -> float:
    """The median of so many, after some that are not counted."""
    each: list[float] = player.ask(WARM_UP + count)
    return statistics.median(each[WARM_UP:]) * 1000


@contextmanager
def _working(module: str, env: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """With a worker, and with a manager where it is ours; gives what clients are told."""
    env = {**env, environment.RESULTS: "1"}
    description = described(module, env)
    link = bare.Link(env[environment.BROKER])
    with ExitStack() as stack:
        if module == OURS:
            stack.enter_context(managers(link, env[environment.BROKER], env[environment.STORE]))
        workers = stack.enter_context(processes.workers(description.worker, 1, env=env))
        wait_for_consumer(link, description.queue, workers)
        yield env


def _per_s(module: str, role: str, env: Mapping[str, str], count: int) -> float:
    processes.ask(module, role, WARM_UP, PAYLOAD_BYTES, env=env)
    seconds: float = processes.ask(module, role, count, PAYLOAD_BYTES, env=env)
    return count / seconds
