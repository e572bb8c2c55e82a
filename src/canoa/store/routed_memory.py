"""The open tasks that one program moved last, as it wrote them: what it wrote itself it need not read again.

Whoever moves a task takes it out, and puts it back once that is on disk. So a commit that failed, or whose outcome
nobody knows, leaves nothing here. Whether another program has written since is for the adapters to find out.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.broker.port import Message
from canoa.execution.step_records import Outline, StepRecord
from canoa.store.ledger import TaskRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_TASKS: Final = 20_000
MAX_BYTES: Final = 64 * 1024 * 1024
"""Of all that is known of them: what they were asked, what their steps gave and how those failed, their plans. More of
either spare reads where very many tasks are open, and take memory."""

_TASK_BYTES: Final = 2_000
_STEP_BYTES: Final = 800
_FAILURE_BYTES: Final = 250
"""What the values of a task, of a step and of a failed attempt take, measured with short ids."""

_OUTLINE_FACTOR: Final = 12
"""How much larger than its document a plan is that is ready for use: measured as 4 where its steps have long names, and
12 where each waits for many others."""


class RoutedTask(msgspec.Struct, gc=False):
    """A task and what is known of it besides its row. `version`: its row's, where the database counts those."""

    task: TaskRecord
    outline: Outline | None = None  # None: its plan is not known, or it is not routed
    steps: list[StepRecord] = []
    request: Message | None = None  # None: not read yet
    version: int = 0
    given_bytes: int = 0  # by its steps, as far as their outputs are at hand
    failures_bytes: int = 0  # as `count_failures` found them

    def count_failures(self) -> None:
        """Whenever there are more: errors may be long, and the attempts of a step many."""
        stories = (each for step in self.steps for each in step.story)
        self.failures_bytes = sum(_FAILURE_BYTES + sys.getsizeof(each.error) for each in stories if each.error)

    def size_bytes(self) -> int:
        """But for its outline, which others may share."""
        asked_bytes = 0 if self.request is None else len(self.request.body)
        return _TASK_BYTES + len(self.steps) * _STEP_BYTES + asked_bytes + self.given_bytes + self.failures_bytes


class Memory:
    """The least lately moved are dropped first."""

    def __init__(self) -> None:
        self._tasks: dict[str, tuple[RoutedTask, int]] = {}  # with their sizes
        self._users: dict[int, int] = {}  # how many of them have an outline, by its `id`
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._tasks

    def take(self, task_ids: Iterable[str]) -> dict[str, RoutedTask]:
        """Those of them that are remembered; they are no longer."""
        taken: dict[str, RoutedTask] = {}
        for task_id in task_ids:
            found = self._tasks.pop(task_id, None)
            if found is not None:
                taken[task_id] = found[0]
                self._bytes -= found[1] + self._disused_bytes(found[0].outline)
        return taken

    def keep(self, tasks: Iterable[RoutedTask]) -> None:
        """As they are on disk. The caller does not change them any more."""
        for each in tasks:
            size_bytes = each.size_bytes()
            self._tasks[each.task.id] = each, size_bytes
            self._bytes += size_bytes + self._used_bytes(each.outline)
        while len(self._tasks) > MAX_TASKS or self._bytes > MAX_BYTES:
            self.take([next(iter(self._tasks))])

    def clear(self) -> None:
        self._tasks.clear()
        self._users.clear()
        self._bytes = 0

    def _used_bytes(self, outline: Outline | None) -> int:
        """What it takes, if no other task has the same."""
        users = self._users[id(outline)] = self._users.get(id(outline), 0) + 1
        return _outline_bytes(outline) if users == 1 else 0

    def _disused_bytes(self, outline: Outline | None) -> int:
        """What it took, if no other task has the same."""
        self._users[id(outline)] -= 1
        if self._users[id(outline)]:
            return 0
        del self._users[id(outline)]
        return _outline_bytes(outline)


def _outline_bytes(outline: Outline | None) -> int:
    return 0 if outline is None else _OUTLINE_FACTOR * len(outline.doc)
