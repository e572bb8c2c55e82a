"""`python -m examples.continuum`: starts what the plan needs, runs it, and tells what happened."""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from canoa.testing import MosquittoNode
from examples.continuum import migration, processes, together
from examples.continuum.nodes import NODES
from examples.continuum.sensor import sensor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from examples.continuum.nodes import Node
    from examples.continuum.scene import Scene


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.continuum", description="A plan over three layers.")
    parser.add_argument("--broker", default=os.environ.get("CANOA_BROKER", ""), help="amqp://…; default: none")
    parser.add_argument("--migrate", action="store_true", help="the edge node on MQTT: it is killed and comes back")
    return parser.parse_args()


async def tell(broker: str) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(sensor())
        scene = await stack.enter_async_context(_scene(NODES, folder, broker))
        await scene.joined(NODES)
        print(await scene.told(url))


async def tell_of_migration(broker: str) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(sensor())
        os.environ["CANOA_MQTT"] = mqtt = stack.enter_context(MosquittoNode(folder)).url  # managers use it too
        scene = await stack.enter_async_context(_scene(migration.OTHERS, folder, broker))
        async for part in migration.story(scene, url, mqtt, folder):
            print(part, flush=True)


def _scene(nodes: Sequence[Node], folder: Path, broker: str) -> AbstractAsyncContextManager[Scene]:
    return processes.manager_and(nodes, folder, broker) if broker else together.manager_and(nodes, folder)


def main() -> None:
    wanted = arguments()
    asyncio.run(tell_of_migration(wanted.broker) if wanted.migrate else tell(wanted.broker))


if __name__ == "__main__":
    main()
