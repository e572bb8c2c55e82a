"""The edge node on MQTT, a process of its own, is killed and comes back: what it did moves to the fog, and returns.

A Mosquitto is started for it; the manager and the other nodes are where they always are.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from examples.continuum.nodes import EDGE, NODES
from examples.continuum.processes import running, worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from examples.continuum.scene import Scene

OTHERS = [node for node in NODES if node is not EDGE]


async def story(scene: Scene, url: str, mqtt: str, folder: Path) -> AsyncIterator[str]:
    """Told as it happens."""
    with _edge(mqtt, folder):
        await scene.joined(NODES)
        yield f"--- {EDGE.name} is at the edge, on MQTT\n{await scene.told(url)}\n"
    await scene.joined(OTHERS)
    yield f"--- {EDGE.name} was killed: its last will said so, and the fog reads the meter\n{await scene.told(url)}\n"
    with _edge(mqtt, folder):
        await scene.joined(NODES)
        yield f"--- {EDGE.name} is back\n{await scene.told(url)}\n"


@contextmanager
def _edge(mqtt: str, folder: Path) -> Iterator[None]:
    """Killed at the end, as by a power cut."""
    command = [*worker(EDGE), "--broker", "memory://", "--mqtt", mqtt, "--outbox", "none"]
    with running(folder / "edge.log", *command) as process:
        try:
            yield
        finally:
            process.kill()
