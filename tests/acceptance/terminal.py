"""A shell as a page shows it: commands typed one after the other, some of which go on, and what they print."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.acceptance.shell import until

if TYPE_CHECKING:
    from collections.abc import Mapping

_SAME = [
    (re.compile(r"\b[0-9a-f]{32}\b"), "ID"),
    (re.compile(r"\d\d-\d\d \d\d:\d\d:\d\d"), "TIME"),
    (re.compile(r"TIME +\d+(\.\d+)? m?s"), "TIME TOOK"),
    (re.compile(r"canoa \d+\.\d+\.\d+"), "canoa VERSION"),
    (re.compile(r"token [\w-]+"), "token TOKEN"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"pid \d+"), "pid PID"),
    (re.compile(r"^node_id +.*", re.MULTILINE), "node_id NODE"),
    (re.compile(r"\d+ % row \d+"), "PERCENT row ROW"),
    (re.compile(r'File ".*/'), 'File "'),
    (re.compile(r"^waiting for .*\n", re.MULTILINE), ""),  # where a terminal shows a bar
    (re.compile(r"─+"), "─"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r" $", re.MULTILINE), ""),
]


def normalised(text: str) -> str:
    """Without what differs from run to run: ids, times, ports, and the width of columns that hold them."""
    for pattern, name in _SAME:
        text = pattern.sub(name, text)
    return text.strip()


class Terminal:
    """One bash. What it and its programs print, on stdout and stderr alike, is read from a file."""

    def __init__(self, folder: Path, *, log: Path, env: Mapping[str, str]) -> None:
        self._log = log
        self._typed = 0
        self._from = 0
        with log.open("wb") as out:
            self._bash = subprocess.Popen(
                ["bash", "--norc"],
                cwd=folder,
                env=dict(env),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def type(self, command: str) -> None:
        """Once what was typed before has ended."""
        if self._typed:
            self.wait_ended()
        self._typed += 1
        self._from = len(self._text())
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{command}\necho '{self._mark}'\n".encode())
        self._bash.stdin.flush()

    def interrupt(self) -> None:
        """Ctrl-C, for the program that goes on."""
        self._from = len(self._text())
        for pid in Path(f"/proc/{self._bash.pid}/task/{self._bash.pid}/children").read_text().split():
            os.kill(int(pid), signal.SIGINT)

    @property
    def said(self) -> str:
        """What the last command printed so far."""
        return normalised(self._text()[self._from :].replace(f"{self._mark}\n", ""))

    def wait_ended(self) -> None:
        until(lambda: f"{self._mark}\n" in self._text()[self._from :])

    def close(self) -> None:
        os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()
        assert self._bash.stdin is not None
        self._bash.stdin.close()

    @property
    def _mark(self) -> str:
        return f"<ended {self._typed}>"

    def _text(self) -> str:
        return self._log.read_text()
