"""The `canoa` program as people run it: a process with little in its environment, its output, its exit code."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).parents[2]
CANOA = Path(sys.executable).with_name("canoa")
DEPOT = "tests.acceptance.depot:app"
WITHIN_S = 30.0


class Shell:
    """Starts programs in `folder`. Whatever it started ends with `close`."""

    def __init__(self, scratch: Path, *, folder: Path = ROOT, env: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        # PYTHONPATH: the code beside these tests is tested, whatever else is installed.
        fixed = {"PATH": "/usr/bin:/bin", "HOME": str(scratch), "PYTHONPATH": str(ROOT / "src")}
        self.env = {**fixed, **(env or {})}
        self._scratch = scratch
        self._started: list[Process] = []

    def canoa(self, *args: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return subprocess.run(
            [str(CANOA), *args],
            cwd=self.folder,
            env={**self.env, **env},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
        )

    def start(self, *command: str, **env: str) -> Process:
        log = self._scratch / f"stderr-{len(self._started)}"
        process = Process(list(command), folder=self.folder, env={**self.env, **env}, log=log)
        self._started.append(process)
        return process

    def start_worker(self, *args: str, **env: str) -> Process:
        """A worker of the depot, ready."""
        worker = self.start(str(CANOA), "worker", DEPOT, *args, **env)
        worker.wait_logged("worker_ready")
        return worker

    def close(self) -> None:
        for process in self._started:
            process.kill()


class Process:
    """A program that goes on. What it says on stderr can be waited for."""

    def __init__(self, command: list[str], *, folder: Path, env: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                command, cwd=folder, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def said(self) -> str:
        """All of stderr so far."""
        return self._log.read_text()

    def events(self) -> list[dict[str, Any]]:
        """Its log records, written as JSON."""
        return [json.loads(line) for line in self.said.splitlines() if line.startswith("{")]

    def wait_logged(self, text: str) -> str:
        """Everything it said, once `text` is part of it."""
        until(lambda: text in self.said or not self.is_alive)
        assert text in self.said, f"ended with {self._process.poll()} and never said {text!r}, but: {self.said}"
        return self.said

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Its exit code."""
        return self._process.wait(WITHIN_S)

    def output(self) -> str:
        """All of stdout, once it has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.read().decode()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def until(is_so: Callable[[], bool], within_s: float = WITHIN_S) -> None:
    ends_at = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < ends_at, f"not so within {within_s:g} s"
        time.sleep(0.02)
