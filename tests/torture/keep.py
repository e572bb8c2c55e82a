"""Kills `canoa up` under load, again and again, and checks that what it accepted has ended, with one result each.

    python -m tests.torture.keep --kills 100

Exit code 1 and a list when a promise was broken.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import msgspec
from tests.torture.fleet import CANOA, ROOT

from canoa.client.door import Order
from canoa.client.remote import Remote
from canoa.errors import CanoaError
from canoa.testing import free_port

CALLERS: Final = 4
READY_WITHIN_S: Final = 30.0
END_WITHIN_S: Final = 60.0
TOKEN: Final = "a-token-for-the-torture"
SHOWN: Final = 20


class Up:
    """One `canoa up` after the other, in one folder, at one port."""

    def __init__(self, folder: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._folder = folder
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [str(CANOA), "up", "tests.torture.kept_actions:app", "--port", str(self._port)]
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "CANOA_API_TOKEN": TOKEN}
        with (self._folder / "up.log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log, env=env)
        ends_at = time.monotonic() + READY_WITHIN_S
        while not (self._folder / ".canoa" / "address").exists():
            if self._process.poll() is not None or time.monotonic() > ends_at:
                raise RuntimeError(f"`canoa up` did not come up: {(self._folder / 'up.log').read_text()[-2000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        (self._folder / ".canoa" / "address").unlink(missing_ok=True)

    def stop(self) -> int:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(40)


class Caller(threading.Thread):
    """Submits without a pause, and remembers what was accepted."""

    def __init__(self, url: str, first: int) -> None:
        super().__init__(daemon=True)
        self.accepted: dict[str, int] = {}
        self.is_over = threading.Event()
        self._url = url
        self._number = first

    def run(self) -> None:
        while not self.is_over.is_set():
            try:
                with Remote(self._url, TOKEN) as remote:
                    self._submit_on(remote)
            except CanoaError:
                time.sleep(0.05)  # it was killed, and comes back

    def _submit_on(self, remote: Remote) -> None:
        while not self.is_over.is_set():
            self._number += CALLERS
            arguments = msgspec.Raw(msgspec.json.encode({"number": self._number, "seconds": random.random() * 0.2}))
            [submitted] = remote.submit([Order(action="torture.wait", arguments=arguments)])
            self.accepted[submitted.id] = self._number
            time.sleep(0.005)


def torture(folder: Path, kills: int, port: int) -> list[str]:
    """The promises that were broken."""
    up = Up(folder, port)
    try:
        return tortured(up, kills)
    finally:
        up.kill()


def tortured(up: Up, kills: int) -> list[str]:
    up.start()
    callers = [Caller(up.url, first) for first in range(CALLERS)]
    for caller in callers:
        caller.start()
    for _ in range(kills):
        time.sleep(random.uniform(0.1, 1.0))
        up.kill()
        up.start()
    for caller in callers:
        caller.is_over.set()
        caller.join(READY_WITHIN_S)
    accepted = {task_id: number for caller in callers for task_id, number in caller.accepted.items()}
    with Remote(up.url, TOKEN) as remote:
        broken = checked(remote, accepted)
    code = up.stop()
    broken += [f"the last `canoa up` ended with {code}"] if code else []
    print(f"{kills} kills, {len(accepted):,} tasks accepted, {len(broken)} promises broken")
    return broken


def checked(remote: Remote, accepted: dict[str, int]) -> list[str]:
    ends_at = time.monotonic() + END_WITHIN_S
    broken = []
    for task_id, number in accepted.items():
        seen = remote.result(task_id, wait_s=max(0.0, ends_at - time.monotonic()))
        if seen.task.outcome != "ok" or seen.result != number:
            broken.append(f"task {task_id}: {seen.task.outcome} {seen.result!r}, wanted ok {number}")
    waiting = remote.tasks(state="waiting", limit=1).tasks
    return broken + [f"task {each.id} was never finished" for each in waiting]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.keep")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    broken = torture(folder, given.kills, given.port or free_port())
    for line in broken[:SHOWN]:
        print(line)
    if broken:
        sys.exit(f"what it logged and stored is in {folder}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
