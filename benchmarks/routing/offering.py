"""What the nodes run: an action that takes as long as its node is slow, once per strategy; and who calls it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from benchmarks import environment
from canoa import Canoa
from canoa.client.asking import ask
from canoa.errors import NobodyManages
from canoa.vocabulary import Routing

if TYPE_CHECKING:
    from canoa.action import Action

FACTOR = 8.0
"""By which a slow node is slower."""

REGISTERED_WITHIN_S = 30.0
LOOK_EVERY_S = 0.1

app = Canoa("routing", broker=environment.broker_url())


async def work() -> None:
    pace_s = float(os.environ[environment.PACE])
    await asyncio.sleep(pace_s * (FACTOR if _slow_one() == os.environ[environment.PACE] else 1) * noise())


def noise() -> float:
    return random.lognormvariate(0, 0.2)


def _slow_one() -> str | None:
    file = Path(os.environ[environment.SLOW])
    return file.read_text() if file.exists() else None


def _slow_down(pace_s: str) -> None:
    Path(os.environ[environment.SLOW]).write_text(pace_s)


ACTIONS: dict[str, Action[..., Any, None]] = {
    each.value: app.action(name=each.value, routing=each, timeout=30)(work) for each in Routing
}


async def called(strategy: str, *, nodes: int, per_s: float, seconds: float, slow: str, seed: int) -> list[float]:
    """Milliseconds of each call; they come by chance, whether others have ended or not. Halfway, one node is slowed."""
    chance = random.Random(seed)
    action = ACTIONS[strategy].using(dispatch="routed")
    took_ms: list[float] = []

    async def one() -> None:
        began = time.perf_counter()
        await action.call()
        took_ms.append(1000 * (time.perf_counter() - began))

    async with app, asyncio.TaskGroup() as calls:
        await _registered(nodes)
        began_s = next_s = asyncio.get_running_loop().time()
        while next_s < began_s + seconds:
            if next_s > began_s + seconds / 2 and _slow_one() is None:
                _slow_down(slow)
            calls.create_task(one())
            next_s += chance.expovariate(per_s)
            await asyncio.sleep(max(0.0, next_s - asyncio.get_running_loop().time()))
    return took_ms


async def _registered(nodes: int) -> None:
    async with asyncio.timeout(REGISTERED_WITHIN_S):
        while await _known() < nodes:  # noqa: ASYNC110  # another process learns it
            await asyncio.sleep(LOOK_EVERY_S)


async def _known() -> int:
    try:
        return len(await ask(app, "nodes", b"{}", is_routed=True))
    except NobodyManages:
        return 0


def main() -> None:
    strategy, nodes, per_s, seconds, slow, seed = sys.argv[1:]
    calling = called(strategy, nodes=int(nodes), per_s=float(per_s), seconds=float(seconds), slow=slow, seed=int(seed))
    print(json.dumps(uvloop.run(calling)))


if __name__ == "__main__":
    main()
