"""Which kept tasks run in this process, written where the next process can read it.

For a broker that dies with the process: nothing is redelivered there, so this file tells which tasks ran when it was
killed. What a process wrote before it was killed stays with the system, so nothing needs to be synced.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.logs import get_logger
from canoa.vocabulary import TaskId

if TYPE_CHECKING:
    from pathlib import Path

log = get_logger(__name__)

REWRITE_BYTES: Final = 1024 * 1024
"""From this size on the file is begun anew with what runs."""


class Journal:
    """One line per begin (`+id`) and end (`-id`). Never raises: on a full disk it forgets, and work goes on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._running: set[TaskId] = set()
        self._size = 0
        self._is_failing = False
        self._file: int | None = None
        self._begin_anew()

    def begun(self, task_id: TaskId) -> None:
        self._running.add(task_id)
        self._write(f"+{task_id}\n".encode())

    def ended(self, task_id: TaskId) -> None:
        self._running.discard(task_id)
        self._write(f"-{task_id}\n".encode())

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, line: bytes) -> None:
        if self._file is None or self._size > REWRITE_BYTES:
            self._begin_anew()
        try:
            if self._file is not None:
                os.write(self._file, line)
                self._size += len(line)
        except OSError as exc:
            self._complain(exc)

    def _begin_anew(self) -> None:
        """In one step, by a rename: a process killed here leaves the old file or the new one."""
        content = "".join(f"+{task_id}\n" for task_id in self._running).encode()
        new = self._path.with_suffix(".new")
        try:
            new.write_bytes(content)
            new.replace(self._path)
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        except OSError as exc:
            self._complain(exc)
            return
        self.close()  # the old one last: its number must not become somebody else's while we still use it
        self._file, self._size, self._is_failing = file, len(content), False

    def _complain(self, exc: OSError) -> None:
        if not self._is_failing:
            self._is_failing = True
            log.warning("journal_not_written", path=str(self._path), reason=str(exc))


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
    try:
        new.write_bytes(msgspec.json.encode(crashes))
        new.replace(counts)
    except OSError as exc:  # a full disk: counted once too few, and started all the same
        log.warning("crashes_not_written", path=str(counts), reason=str(exc))
    return crashes
