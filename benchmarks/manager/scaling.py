"""`two_managers…`: what a second manager on the same PostgreSQL adds, and how often the two are in each other's way."""

from __future__ import annotations

import time
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

    from canoa.testing.postgres import PostgresNode

SHARE = 0.3
"""Of a core, for each manager: then managers are what is short, not the machine."""

LEAST_PERCENT = 0.01
"""Less is written as this, so that a ratio exists."""

TOLD_WITHIN_S = 2.0
"""PostgreSQL's processes report what they did when they end, which takes a moment after their clients are gone."""


class Scaled(NamedTuple):
    per_s: float
    conflicts_percent: float


def gathered(env: Mapping[str, str], server: PostgresNode, *, count: int, of: int, is_limited: bool) -> Scaled:
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
            stack.enter_context(limited([manager.group for manager in running], SHARE))
        seconds: float = processes.ask(OURS, plan.GATHER, count, PAYLOAD_BYTES, env=env)
    return Scaled(count / seconds, _conflicts_percent(server, env[environment.STORE]))


def _conflicts_percent(server: PostgresNode, store_url: str) -> float:
    """Transactions that met another one and were done again, of all: a manager rolls back for no other reason."""
    time.sleep(TOLD_WITHIN_S)
    database = store_url.rpartition("/")[2]
    counted = server.sql(f"SELECT xact_rollback, xact_commit FROM pg_stat_database WHERE datname = '{database}'")
    rolled_back, committed = map(int, counted.split("|"))
    return max(100 * rolled_back / (rolled_back + committed), LEAST_PERCENT)
