"""`two_managers…`: what a second manager on the same PostgreSQL adds, and how often the two are in each other's way."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from benchmarks import bare, environment, processes
from benchmarks.manager import plan
from benchmarks.manager.contestants import OURS
from benchmarks.manager.limits import limited
from benchmarks.manager.managers import managers
from benchmarks.manager.talking import PAYLOAD_BYTES, WARM_UP, described
from benchmarks.polling import wait_for_consumer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.manager.managers import Manager

SHARE = 0.3
"""Of a core, for each manager: then managers are what is short, not the machine."""

LEAST_PERCENT = 0.01
"""Less is written as this, so that a ratio exists."""


class Scaled(NamedTuple):
    per_s: float
    conflicts_percent: float


def gathered(env: Mapping[str, str], *, count: int, of: int, is_limited: bool) -> Scaled:
    """Routed results per second with `of` managers."""
    broker_url = env[environment.BROKER]
    description = described(OURS, env)
    link = bare.Link(broker_url)
    with ExitStack() as stack:
        running = stack.enter_context(managers(link, broker_url, env[environment.STORE], of))
        workers = stack.enter_context(processes.workers(description.worker, 1, env=env))
        wait_for_consumer(link, description.queue, workers)
        processes.ask(OURS, plan.GATHER, WARM_UP, PAYLOAD_BYTES, env=env)
        if is_limited:
            stack.enter_context(limited([manager.process.group for manager in running], SHARE))
        seconds: float = processes.ask(OURS, plan.GATHER, count, PAYLOAD_BYTES, env=env)
        return Scaled(count / seconds, _conflicts_percent(running))


def _conflicts_percent(running: list[Manager]) -> float:
    """Transactions that met another one and were begun anew, of all."""
    repeated = sum(manager.counted("canoa_store_conflicts_total") for manager in running)
    done = sum(manager.counted("canoa_store_transactions_total") for manager in running)
    return max(100 * repeated / (repeated + done), LEAST_PERCENT)
