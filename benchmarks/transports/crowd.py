"""`mqtt_nodes_2000_cpu…`: what a manager spends on many devices that are connected, while nothing else happens."""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from typing import TYPE_CHECKING

from benchmarks import bare, environment, processes
from benchmarks.manager.crowd import FORCED_EVERY_S, registered
from benchmarks.manager.managers import managers
from benchmarks.polling import polling
from benchmarks.processes import ContestantFailed
from benchmarks.usage import usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.manager.managers import Manager

REGISTERED_WITHIN_S = 120
SPARE_FILES = 500
"""That the brokers hold besides connections."""


def allow_files(nodes: int) -> None:
    """For this process and those it starts; raises where the machine allows fewer."""
    _, at_most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * nodes + SPARE_FILES  # RabbitMQ counts a socket, and keeps some of what is left for queues
    if at_most != resource.RLIM_INFINITY and at_most < wanted:
        raise SystemExit(
            f"{nodes} connections need {wanted} open files, of {at_most} that are allowed; see 'ulimit -Hn'"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if at_most == resource.RLIM_INFINITY else at_most, at_most))


def cpu_percent(env: Mapping[str, str], told: Mapping[str, str], *, nodes: int, seconds: float) -> float:
    """Of one core. A forced round of registrations falls into every 50 seconds. `told`: to the manager."""
    broker_url, store_url = env[environment.BROKER], env[environment.STORE]
    command = [sys.executable, "-m", "benchmarks.transports.swarm", str(nodes)]
    with (
        managers(bare.Link(broker_url), broker_url, store_url, env=told) as [manager],
        processes.workers(command, 1, env=env) as [swarm],
    ):
        for _ in polling(REGISTERED_WITHIN_S, f"{nodes} nodes", every_s=0.5):
            swarm.check()
            if asyncio.run(registered(store_url)) >= nodes:
                break
        used = _used_percent(manager, seconds)
        swarm.check()
        if seconds >= FORCED_EVERY_S and manager.counted("canoa_registrations_total") < 2 * nodes:
            raise ContestantFailed("the nodes did not register again, though a heartbeat must have said so")
    return used


def _used_percent(manager: Manager, seconds: float) -> float:
    before, began = usage(manager.process.group), time.monotonic()
    time.sleep(seconds)
    manager.process.check()
    after, elapsed_s = usage(manager.process.group), time.monotonic() - began
    return 100 * (after.cpu_s - before.cpu_s) / elapsed_s
