"""A terminal that a program draws on: what it shows now, and not only what was ever written to it."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import threading
from typing import TYPE_CHECKING

from tests.acceptance.shell import CANOA

if TYPE_CHECKING:
    from tests.acceptance.shell import Shell

_ERASED = "\x1b[2K"
"""A line is, before it is drawn anew."""

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Screen:
    """A command of `canoa` whose stderr is a terminal. Its stdout is none."""

    def __init__(self, shell: Shell, *args: str) -> None:
        self._end, terminal = pty.openpty()
        self._process = subprocess.Popen(
            [str(CANOA), *args],
            cwd=shell.folder,
            env={**shell.env, "TERM": "xterm", "COLUMNS": "160"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=terminal,
        )
        os.close(terminal)
        self._drawn = b""
        self._reading = threading.Thread(target=self._read, name="screen", daemon=True)
        self._reading.start()

    def _read(self) -> None:
        """All the time: a program that draws must not wait for us."""
        try:
            while chunk := os.read(self._end, 65536):
                self._drawn += chunk
        except OSError:  # Linux ends a terminal so
            pass

    @property
    def drawn(self) -> str:
        """Everything so far, without colours and moves."""
        return _CONTROL.sub("", self._drawn.decode(errors="replace"))

    @property
    def rows(self) -> dict[str, str]:
        """Of the table that it shows now: the second word by the first."""
        last = self._drawn.decode(errors="replace").rpartition(_ERASED)[2]
        rows = [_CONTROL.sub("", line).split() for line in last.splitlines()]
        return {row[0]: row[1] for row in rows if len(row) > 2}

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> tuple[int, str]:
        """Its exit code, and all of its stdout."""
        out, _ = self._process.communicate(timeout=30)
        self._reading.join(10)
        return self._process.returncode, out.decode()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._reading.join(10)
        os.close(self._end)
