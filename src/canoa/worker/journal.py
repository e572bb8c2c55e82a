"""Which kept tasks run in this process, written where the next process can read it.

For a broker that dies with the process: nothing is redelivered there, so this file tells which tasks ran when it was
killed. What a process wrote before it was killed stays with the system, so nothing needs to be synced.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.vocabulary import TaskId

if TYPE_CHECKING:
    from pathlib import Path

REWRITE_BYTES: Final = 1024 * 1024
"""From this size on the file is begun anew with what runs."""


class Journal:
    """One line per begin (`+id`) and end (`-id`)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._running: set[TaskId] = set()
        self._begin_anew()

    def begun(self, task_id: TaskId) -> None:
        self._running.add(task_id)
        self._write(f"+{task_id}\n".encode())

    def ended(self, task_id: TaskId) -> None:
        self._running.discard(task_id)
        self._write(f"-{task_id}\n".encode())

    def close(self) -> None:
        os.close(self._file)

    def _write(self, line: bytes) -> None:
        os.write(self._file, line)
        self._size += len(line)
        if self._size > REWRITE_BYTES:
            os.close(self._file)
            self._begin_anew()

    def _begin_anew(self) -> None:
        """In one step, by a rename: a process killed here leaves the old file or the new one."""
        new = self._path.with_suffix(".new")
        content = "".join(f"+{task_id}\n" for task_id in self._running).encode()
        new.write_bytes(content)
        new.replace(self._path)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        self._size = len(content)


def left_running(path: Path) -> set[TaskId]:
    """What had begun and not ended when its process did."""
    running: set[TaskId] = set()
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return running
    for line in lines:
        if line.startswith("+"):
            running.add(TaskId(line[1:]))
        else:
            running.discard(TaskId(line[1:]))
    return running


def count_crashes(journal: Path, counts: Path) -> dict[TaskId, int]:
    """How often each task ran when its process ended without a word, this time included. `counts` remembers it; a task
    that was not running this time has proven itself harmless, or ended."""
    try:
        before = msgspec.json.decode(counts.read_bytes(), type=dict[str, int])
    except (OSError, msgspec.MsgspecError):
        before = {}
    crashes = {task_id: before.get(task_id, 0) + 1 for task_id in left_running(journal)}
    new = counts.with_suffix(".new")
    new.write_bytes(msgspec.json.encode(crashes))
    new.replace(counts)
    return crashes
