"""Kills managers under load, again and again, and checks that what was accepted has ended, with one result.

    python -m tests.torture.manager --kills 100 [--alone]

Two of them, in turn, that share a PostgreSQL; or one, on SQLite. With a RabbitMQ, all private. Exit code 1 and a list
when a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.acceptance.kept_depot import Rabbit
from tests.acceptance.plant import EVERYTHING, Plant

from canoa.errors import CanoaError
from canoa.store.port import State, TaskFilter
from canoa.testing import PostgresNode, RabbitNode

if TYPE_CHECKING:
    from canoa.client.handle import Handle

LONGEST_S: Final = 1.0
END_WITHIN_S: Final = 120.0
TOLD_WITHIN_S: Final = 30.0
LEFT_WITHIN_S: Final = 30.0
SHOWN: Final = 20


async def tortured(folder: Path, rabbit: Rabbit, store_url: str, *, count: int, kills: int) -> list[str]:
    """The promises that were broken."""
    async with Plant(folder, rabbit, store_url) as plant:
        managers = [await plant.manager() for _ in range(count)]
        nodes = [await plant.node("gw-1"), await plant.node("gw-2")]
        async with plant.load(batch=10):
            for kill in range(kills):
                await plant.ready(managers[kill % count])
                await asyncio.sleep(random.uniform(0, LONGEST_S))
                managers[kill % count].kill()
                managers[kill % count] = plant.start_manager()
        broken = await checked(plant)
        broken += [f"node {node.pid} ended by itself: {node.said[-500:]}" for node in nodes if not node.is_alive]
        said_again = f"{plant.finals.repeated} final results said again"
        print(f"{kills} kills, {len(plant.handles):,} tasks accepted, {said_again}, {len(broken)} promises broken")
        return broken


async def checked(plant: Plant) -> list[str]:
    ends_at = asyncio.get_running_loop().time() + END_WITHIN_S
    broken = []
    for number, handle in plant.handles.items():
        left_s = max(0.1, ends_at - asyncio.get_running_loop().time())
        said = await _said(handle, left_s)
        if said != plant.wanted[number]:
            broken.append(f"task {handle.id}: {said!r}, wanted {plant.wanted[number]}")
    async with plant.opened() as store:
        rows = await store.tasks(TaskFilter(), limit=EVERYTHING)
    unfinished = [row for row in rows if row.state is not State.ENDED or row.outcome != "ok"]
    broken += [f"task {row.id} is recorded as {row.state}, {row.outcome}" for row in unfinished]
    broken += [f"{count} are left in {place}" for place, count in (await plant.left(LEFT_WITHIN_S)).items()]
    return broken + await _told_wrongly(plant)


async def _told_wrongly(plant: Plant) -> list[str]:
    numbered = {handle.id for handle in plant.handles.values()}
    with suppress(TimeoutError):
        async with asyncio.timeout(TOLD_WITHIN_S):
            await plant.finals.wait_for(numbered)
    untold = [f"task {task_id}: its final result was never published" for task_id in numbered - plant.finals.of.keys()]
    return untold + [f"task {task_id} ended as {ends}" for task_id, ends in plant.finals.contradictions.items()]


async def _said(handle: Handle[object], within_s: float) -> object:
    try:
        return await handle.result(within_s)
    except CanoaError as exc:
        return exc


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.manager")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--alone", action="store_true", help="one manager, on SQLite")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    with (
        tempfile.TemporaryDirectory() as rabbit_folder,
        RabbitNode(Path(rabbit_folder)) as rabbit,
        ExitStack() as stack,
    ):
        count, url = (1, f"sqlite:///{folder}/canoa.db") if given.alone else (2, _postgres_url(stack))
        broken = asyncio.run(tortured(folder, Rabbit(rabbit, rabbit.url()), url, count=count, kills=given.kills))
    for line in broken[:SHOWN]:
        print(line)
    if broken:
        sys.exit(f"what it logged is in {folder}")
    shutil.rmtree(folder)


def _postgres_url(stack: ExitStack) -> str:
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    postgres = stack.enter_context(PostgresNode(Path(folder)))
    return postgres.url(postgres.add_database())


if __name__ == "__main__":
    main()
