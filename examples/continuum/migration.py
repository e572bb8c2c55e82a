"""The edge node on MQTT, a process of its own, which stops and comes back: what it did moves to the fog, and returns.

The manager and the other nodes are in this process, on a memory broker; a Mosquitto is started beside them.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from canoa.cli import story as telling
from canoa.testing import MosquittoNode
from examples.continuum.nodes import EDGE, NODES
from examples.continuum.plan import plan
from examples.continuum.sensor import sensor
from examples.continuum.together import joined, manager_and

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from canoa.recorder.desk import Desk

CANOA = str(Path(sys.executable).with_name("canoa"))


async def story() -> AsyncIterator[str]:
    """Told as it happens."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        mosquitto = stack.enter_context(MosquittoNode(folder))
        url = stack.enter_context(sensor())
        os.environ["CANOA_MQTT"] = mosquitto.url
        others = [node for node in NODES if node is not EDGE]
        desk = await stack.enter_async_context(manager_and(others, folder))
        with _edge(folder):
            await joined(desk, NODES)
            yield await _told(desk, url, f"--- {EDGE.name} is at the edge, on MQTT")
        await joined(desk, others)
        yield await _told(desk, url, f"--- {EDGE.name} was killed: its last will said so, and the fog reads the meter")
        with _edge(folder):
            await joined(desk, NODES)
            yield await _told(desk, url, f"--- {EDGE.name} is back")


async def _told(desk: Desk, url: str, title: str) -> str:
    handle = await plan.submit(url=url)
    result = await handle.result(30)
    return "\n".join([title, *telling.lines(await desk.story(handle.id)), "", result, ""])


@contextmanager
def _edge(folder: Path) -> Iterator[None]:
    """Killed at the end, as by a power cut."""
    place = ["--layer", EDGE.layer.value, "--site", EDGE.site, "--node-id", EDGE.name]
    command = [CANOA, "worker", f"examples.continuum.{EDGE.module}:app", "--broker", "memory://", *place]
    with (folder / "edge.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--mqtt", os.environ["CANOA_MQTT"], "--outbox", "none"], stdout=log, stderr=log
        )
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def tell() -> None:
    async for part in story():
        print(part, flush=True)


def main() -> None:
    asyncio.run(tell())
