"""The way it is in life: a manager and workers, each a process of its own, which meet on a RabbitMQ."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from examples.continuum.plan import app, plan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from examples.continuum.nodes import Node

CANOA = str(Path(sys.executable).with_name("canoa"))
READY_WITHIN_S = 30.0


class Processes:
    """Asked by the commands that you would use."""

    def __init__(self, broker: str) -> None:
        self._broker = broker

    async def joined(self, nodes: Sequence[Node]) -> None:
        """Until the manager knows these to be there, and no others."""
        wanted = {node.name for node in nodes}
        async with asyncio.timeout(READY_WITHIN_S):
            while await self._here() != wanted:
                pass  # the command takes its time

    async def _here(self) -> set[str]:
        return {each["id"] for each in json.loads(await self._canoa("nodes", "--json")) if each["state"] == "here"}

    async def told(self, url: str) -> str:
        handle = await plan.submit(url=url)
        result = await handle.result(READY_WITHIN_S)
        return f"{await self._canoa('task', 'show', handle.id)}\n{result}"

    async def _canoa(self, *command: str) -> str:
        call = [CANOA, *command, "--broker", self._broker]
        run = await asyncio.to_thread(subprocess.run, call, capture_output=True, text=True, check=False)
        if run.returncode:
            raise SystemExit(run.stderr)
        return run.stdout


@asynccontextmanager
async def manager_and(nodes: Sequence[Node], folder: Path, broker: str) -> AsyncIterator[Processes]:
    app.use_broker(broker)
    async with AsyncExitStack() as stack:
        log = folder / "manager.log"
        store = f"sqlite:///{folder}/canoa.db"
        stack.enter_context(running(log, "manager", "--broker", broker, "--store", store, "--port", "0", "--json"))
        await asyncio.to_thread(_wait_said, log, "manager_ready")
        for node in nodes:
            stack.enter_context(running(folder / f"{node.name}.log", *worker(node), "--broker", broker))
        await stack.enter_async_context(app)
        yield Processes(broker)


def worker(node: Node) -> list[str]:
    place = ["--layer", node.layer.value, "--site", node.site, "--node-id", node.name]
    return ["worker", f"examples.continuum.{node.module}:app", *place]


@contextmanager
def running(log: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as said:
        process = subprocess.Popen([CANOA, *command], stdout=said, stderr=said)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _wait_said(log: Path, words: str) -> None:
    ends_at = time.monotonic() + READY_WITHIN_S
    while words not in log.read_text():
        if time.monotonic() > ends_at:
            raise SystemExit(f"{log.stem} did not say {words!r}, but: {log.read_text()[-2000:]}")
        time.sleep(0.05)
