"""`nodes_1000_cpu`, `proven_1000_cpu`: what a manager spends on many registered nodes while nothing else happens."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

from benchmarks import bare, environment, processes
from benchmarks.manager.managers import managers
from benchmarks.polling import polling
from benchmarks.processes import ContestantFailed
from benchmarks.usage import usage
from canoa.store.opening import new_store

if TYPE_CHECKING:
    from collections.abc import Mapping

REGISTERED_WITHIN_S = 60
FORCED_EVERY_S = 55.0
"""Every tenth heartbeat, and some time to follow it."""


SWARM = "benchmarks.manager.swarm"
CHOIR = "benchmarks.manager.choir"


def cpu_percent(env: Mapping[str, str], *, program: str, nodes: int, seconds: float) -> float:
    """Of one core. `program`: plays the nodes. A forced round of registrations falls into every 50 seconds."""
    broker_url, store_url = env[environment.BROKER], env[environment.STORE]
    link = bare.Link(broker_url)
    command = [sys.executable, "-m", program, str(nodes)]
    with managers(link, broker_url, store_url) as [manager], processes.workers(command, 1, env=env) as [swarm]:
        for _ in polling(REGISTERED_WITHIN_S, f"{nodes} nodes", every_s=0.5):
            swarm.check()
            if asyncio.run(registered(store_url)) >= nodes:
                break
        before, began = usage(manager.process.group), time.monotonic()
        time.sleep(seconds)
        manager.process.check()
        after, elapsed_s = usage(manager.process.group), time.monotonic() - began
        if seconds >= FORCED_EVERY_S and manager.counted("canoa_registrations_total") < 2 * nodes:
            raise ContestantFailed("the nodes did not register again, though a heartbeat must have said so")
        if program == CHOIR and manager.counted(r'canoa_canaries_total\{what="answered"\}') < nodes:
            raise ContestantFailed("not all nodes were proven, though each of them answers")
    return 100 * (after.cpu_s - before.cpu_s) / elapsed_s


async def registered(store_url: str) -> int:
    store = new_store(store_url)
    await store.open()
    try:
        return len(await store.nodes())
    finally:
        await store.aclose()
