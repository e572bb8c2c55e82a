"""Workers as processes that are killed while they hold work, and replaced at once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.torture.actions import COUNT_FILE, read_count

if TYPE_CHECKING:
    from types import TracebackType

ROOT = Path(__file__).parents[2]
CANOA = Path(sys.executable).with_name("canoa")
STOPPED_WITHIN_S = 2.0
READY_WITHIN_S = 30.0


class WorkerProcess:
    """One `canoa worker`. What it logs is in `log`."""

    def __init__(self, folder: Path, number: int, broker: str) -> None:
        self.number = number
        self.log = folder / f"worker-{number}.log"
        self._count = folder / f"count-{number}"
        command = [str(CANOA), "worker", "tests.torture.actions:app", "--broker", broker, "--concurrency", "8"]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--node-id", f"worker-{number}", "--drain", "10"],
                cwd=ROOT,
                stderr=log,
                env={**os.environ, COUNT_FILE: str(self._count)},
            )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def seems_to_run(self) -> bool:
        return self.is_alive and read_count(self._count) > 0

    def kill_if_it_holds(self) -> bool:
        """Stop it, look, and only then kill it or let it go on: a stopped process cannot finish behind our back."""
        self._process.send_signal(signal.SIGSTOP)
        self._wait_stopped()
        if read_count(self._count) == 0:
            self._process.send_signal(signal.SIGCONT)
            return False
        self.kill()
        return True

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def ask_to_end(self) -> None:
        """By SIGTERM, once it can hear: before its first line Python itself, not Canoa, says what a signal does."""
        ends_at = time.monotonic() + READY_WITHIN_S
        while b"worker_ready" not in self.log.read_bytes() and self.is_alive and time.monotonic() < ends_at:
            time.sleep(0.02)
        self._process.terminate()

    def wait_ended(self) -> int:
        """Its exit code."""
        try:
            return self._process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL

    def _wait_stopped(self) -> None:
        ends_at = time.monotonic() + STOPPED_WITHIN_S
        while not all(state == "T" for state in self._thread_states()):
            if time.monotonic() > ends_at:
                raise RuntimeError(f"worker {self.number} did not stop")
            time.sleep(0.001)

    def _thread_states(self) -> list[str]:
        threads = Path(f"/proc/{self._process.pid}/task").iterdir()
        return [(each / "stat").read_text().rpartition(")")[2].split()[0] for each in threads]


class Fleet:
    """`size` workers, whatever happens to them. As a context manager it leaves none behind."""

    def __init__(self, folder: Path, broker: str, size: int) -> None:
        self._folder = folder
        self._broker = broker
        self._size = size
        self._started = 0
        self._workers: list[WorkerProcess] = []
        self.died_by_themselves: list[str] = []

    def replenish(self) -> None:
        """Replace those that are gone. A worker that nobody killed is a broken promise, and is written down."""
        for worker in [each for each in self._workers if not each.is_alive]:
            self._workers.remove(worker)
            self.died_by_themselves.append(f"worker {worker.number} ended by itself: {worker.log.read_text()[-500:]}")
        while len(self._workers) < self._size:
            self._started += 1
            self._workers.append(WorkerProcess(self._folder, self._started, self._broker))

    def kill_one_that_holds(self) -> bool:
        candidates = [each for each in self._workers if each.seems_to_run]
        if not candidates:
            return False
        victim = random.choice(candidates)
        if not victim.kill_if_it_holds():
            return False
        self._workers.remove(victim)
        self.replenish()
        return True

    def drain(self) -> list[str]:
        """End all in good order; what they did wrong."""
        for worker in self._workers:
            worker.ask_to_end()
        codes = {worker: worker.wait_ended() for worker in self._workers}
        self._workers.clear()
        return [f"worker {each.number} drained with exit code {code}" for each, code in codes.items() if code]

    def __enter__(self) -> Fleet:
        self.replenish()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.kill()
