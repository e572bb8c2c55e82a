"""`two_managers…`: what a second manager on the same PostgreSQL adds, and how often the two are in each other's way."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from benchmarks import bare, environment, processes
from benchmarks.manager import plan
from benchmarks.manager.contestants import OURS
from benchmarks.manager.limits import limited
from benchmarks.manager.managers import managers
from benchmarks.manager.talking import PAYLOAD_BYTES, WARM_UP, described, per_s
from benchmarks.polling import wait_for_consumer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.manager.managers import Manager
    from benchmarks.processes import Player

SHARE = 0.3
"""Of a core, for each manager: then managers are what is short, not the machine."""

LEAST_PERCENT = 0.01
"""Less is written as this, so that a ratio exists."""


class Site:
    """Some managers, a worker, and a client."""

    def __init__(self, managers: list[Manager], player: Player) -> None:
        self._managers = managers
        self._player = player

    def per_s(self, count: int) -> float:
        """Routed results."""
        return per_s(self._player, count)

    def conflicts_percent(self) -> float:
        """Transactions that met another one and were begun anew, of all so far."""
        repeated = sum(manager.counted("canoa_store_conflicts_total") for manager in self._managers)
        done = sum(manager.counted("canoa_store_transactions_total") for manager in self._managers)
        return max(100 * repeated / (repeated + done), LEAST_PERCENT)


@contextmanager
def site(env: Mapping[str, str], *, of: int, is_limited: bool) -> Iterator[Site]:
    """With `of` managers."""
    broker_url = env[environment.BROKER]
    description = described(OURS, env)
    link = bare.Link(broker_url)
    with ExitStack() as stack:
        running = stack.enter_context(managers(link, broker_url, env[environment.STORE], of))
        workers = stack.enter_context(processes.workers(description.worker, 1, env=env))
        wait_for_consumer(link, description.queue, workers)
        player = stack.enter_context(processes.player(OURS, plan.GATHER, PAYLOAD_BYTES, env=env))
        player.ask(WARM_UP)  # before there is a limit
        if is_limited:
            stack.enter_context(limited([manager.process.group for manager in running], SHARE))
        yield Site(running, player)
