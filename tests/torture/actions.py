"""The app that is tortured: two actions that wait, and a count that says for certain whether one runs.

The count lives in a file that the harness reads while the process is stopped: an action that runs has not been
acknowledged, so a count above zero means that its worker holds a delivery.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import struct
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from canoa import Canoa

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT_FILE = "CANOA_TORTURE_COUNT"
_COUNT = struct.Struct("<q")

app = Canoa("torture")


class RunningCount:
    """How many actions run in this process, where another process can read it."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_COUNT.size))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _COUNT.size)
        self._running = 0
        self._lock = threading.Lock()

    @contextmanager
    def one_more(self) -> Iterator[None]:
        self._add(1)
        try:
            yield
        finally:
            self._add(-1)

    def _add(self, change: int) -> None:
        with self._lock:
            self._running += change
            _COUNT.pack_into(self._shared, 0, self._running)


def read_count(path: Path) -> int:
    """Zero also while the worker is still starting."""
    try:
        (running,) = _COUNT.unpack(path.read_bytes())
    except (OSError, struct.error):
        return 0
    return int(running)


_path = os.environ.get(COUNT_FILE)
_running = RunningCount(Path(_path)) if _path else None


@contextmanager
def _counted() -> Iterator[None]:
    if _running is None:
        raise RuntimeError(f"set {COUNT_FILE}: this action is for workers that the harness starts")
    with _running.one_more():
        yield


# A task that the harness kills many times in a row is no poison: only its bad luck is tested here.
@app.action(timeout=30, max_crashes=10)
async def wait_on_loop(number: int, *, seconds: float) -> int:
    with _counted():
        await asyncio.sleep(seconds)
        return number


@app.action(timeout=30, max_crashes=10)
def wait_in_thread(number: int, *, seconds: float) -> int:
    with _counted():
        time.sleep(seconds)
        return number
