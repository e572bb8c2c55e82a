"""The way it is in life: a manager and three workers, each a process of its own, which meet on a RabbitMQ."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from examples.continuum.nodes import NODES
from examples.continuum.plan import app, plan
from examples.continuum.sensor import sensor

if TYPE_CHECKING:
    from collections.abc import Iterator

CANOA = str(Path(sys.executable).with_name("canoa"))
READY_WITHIN_S = 30.0


def story(broker: str) -> str:
    with tempfile.TemporaryDirectory() as folder, sensor() as url, ExitStack() as stack:
        log = Path(folder) / "manager.log"
        store = f"sqlite:///{folder}/canoa.db"
        stack.enter_context(_running(log, "manager", "--broker", broker, "--store", store, "--port", "0"))
        _wait_said(log, "manager_ready")
        for node in NODES:
            log = Path(folder) / f"{node.name}.log"
            place = ["--layer", node.layer.value, "--site", node.site, "--node-id", node.name]
            target = f"examples.continuum.{node.module}:app"
            stack.enter_context(_running(log, "worker", target, "--broker", broker, *place))
            _wait_said(log, "node_registered")
        task_id, result = asyncio.run(_submitted(broker, url))
        told = subprocess.run([CANOA, "task", "show", task_id, "--broker", broker], capture_output=True, text=True)
        return f"{told.stdout}{told.stderr}\n{result}"


async def _submitted(broker: str, url: str) -> tuple[str, str]:
    app.use_broker(broker)
    async with app:
        handle = await plan.submit(url=url)
        return handle.id, await handle.result(READY_WITHIN_S)


@contextmanager
def _running(log: Path, *command: str) -> Iterator[None]:
    with log.open("wb") as said:
        process = subprocess.Popen([CANOA, *command, "--json"], stdout=said, stderr=said)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _wait_said(log: Path, words: str) -> None:
    ends_at = time.monotonic() + READY_WITHIN_S
    while words not in log.read_text():
        if time.monotonic() > ends_at:
            raise SystemExit(f"{log.stem} did not say {words!r}, but: {log.read_text()[-2000:]}")
        time.sleep(0.05)
