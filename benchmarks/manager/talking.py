"""How fast results come. Whoever takes part plays its role in turns with the others: what anything takes here moves by
a third from minute to minute, for everybody alike.
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
    from collections.abc import Iterator, Mapping

    from benchmarks.processes import Player

PAYLOAD_BYTES = 100
WARM_UP = 20
"""At the begin of every turn, and not counted."""


def described(module: str, env: Mapping[str, str]) -> Description:
    return msgspec.convert(processes.ask(module, "describe", env=env), Description)


@contextmanager
def player(module: str, role: str, env: Mapping[str, str]) -> Iterator[Player]:
    """Plays it, with a worker behind it, and with a manager where it is ours, whenever it is asked to."""
    env = {**env, environment.RESULTS: "1"}
    description = described(module, env)
    link = bare.Link(env[environment.BROKER])
    with ExitStack() as stack:
        if module == OURS:
            stack.enter_context(managers(link, env[environment.BROKER], env[environment.STORE]))
        workers = stack.enter_context(processes.workers(description.worker, 1, env=env))
        wait_for_consumer(link, description.queue, workers)
        yield stack.enter_context(processes.player(module, role, PAYLOAD_BYTES, env=env))


def figure(player: Player, role: str, count: int) -> float:
    """Of one turn: the median of calls in milliseconds, or results per second."""
    if role == plan.CALL:
        each: list[float] = player.ask(WARM_UP + count)
        return statistics.median(each[WARM_UP:]) * 1000
    return per_s(player, count)


def per_s(player: Player, count: int) -> float:
    player.ask(WARM_UP)
    seconds: float = player.ask(count)
    return count / seconds
