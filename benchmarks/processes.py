"""The processes of a contestant: clients, which answer and end, and workers, which run until killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[1]
CLIENT_TIMEOUT_S = 300


class ContestantFailed(Exception):
    """A contestant's process ended badly, or did not do its work in time."""


def environment_with(variables: Mapping[str, str]) -> dict[str, str]:
    # Console scripts do not put the current folder on the path.
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **variables}


def ask(contestant: str, *words: object, env: Mapping[str, str]) -> Any:
    """Let a contestant's module play a role (`client.py`), and give its answer."""
    return run("benchmarks.client", contestant, *words, env=env)


def run(module: str, *words: object, env: Mapping[str, str]) -> Any:
    """The answer of a program of ours: the last line that it prints, which is JSON."""
    command = [sys.executable, "-m", module, *map(str, words)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment_with(env), capture_output=True, text=True, timeout=CLIENT_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as exc:
        raise ContestantFailed(str(exc)) from exc
    if done.returncode != 0:
        raise ContestantFailed(f"{module} {' '.join(map(str, words))} failed:\n{done.stderr[-2000:]}")
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError) as exc:
        raise ContestantFailed(f"{module} {' '.join(map(str, words))} did not answer: {done.stdout[-200:]!r}") from exc


class Player:
    """A contestant's client that stays, and plays its role whenever it is asked: so several can take turns."""

    def __init__(self, process: subprocess.Popen[str], about: str) -> None:
        self._process = process
        self._about = about

    def ask(self, count: int) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(count, file=self._process.stdin, flush=True)
            return json.loads(self._process.stdout.readline())
        except (BrokenPipeError, ValueError) as exc:
            raise ContestantFailed(f"{self._about} did not answer; its last words are above") from exc


@contextmanager
def player(contestant: str, role: str, size: int, *, env: Mapping[str, str]) -> Iterator[Player]:
    command = [sys.executable, "-m", "benchmarks.client", contestant, role, "-", str(size)]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment_with(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Player(process, f"{contestant} {role}")
    finally:
        process.kill()
        process.communicate()


class Worker:
    """One running worker command, with all the processes it started."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: IO[bytes], *, folder: Path) -> None:
        self._log = log
        self._process = subprocess.Popen(
            command, cwd=folder, env=environment_with(env), stdout=log, stderr=log, start_new_session=True
        )
        self.group = self._process.pid

    def check(self) -> None:
        """Raise if it ended by itself."""
        if self._process.poll() is not None:
            self._log.seek(0)
            said = self._log.read().decode(errors="replace")[-2000:]
            raise ContestantFailed(f"the worker ended with {self._process.returncode}:\n{said}")

    def kill(self) -> None:
        """At once: a graceful stop takes some systems many seconds, and nothing is measured any more."""
        with suppress(ProcessLookupError):
            os.killpg(self.group, signal.SIGKILL)
        self._process.wait()


@contextmanager
def workers(
    command: Sequence[str], count: int, *, env: Mapping[str, str], folder: Path = ROOT
) -> Iterator[list[Worker]]:
    running: list[Worker] = []
    with tempfile.TemporaryFile() as log:
        try:
            for _ in range(count):
                running.append(Worker(command, env, log, folder=folder))
            yield running
        finally:
            for worker in running:
                worker.kill()
