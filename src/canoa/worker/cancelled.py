"""The tasks this worker heard are cancelled: a bounded memory, oldest forgotten first."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from canoa.vocabulary import TaskId

MAX_TASK_ID_BYTES: Final = 255
"""What AMQP allows for a message id. A notice of anything longer is noise."""


class CancelledTasks:
    """`capacity`: notices come before, during or after their task; what is forgotten too early just runs."""

    def __init__(self, capacity: int = 10_000) -> None:
        self._ids: OrderedDict[TaskId, None] = OrderedDict()
        self._capacity = capacity

    def hear(self, notice: bytes) -> TaskId | None:
        """The task that a notice is about, which is remembered; None: it is noise."""
        if len(notice) > MAX_TASK_ID_BYTES:
            return None
        task_id = TaskId(notice.decode(errors="replace"))
        self.add(task_id)
        return task_id

    def add(self, task_id: TaskId) -> None:
        self._ids[task_id] = None
        self._ids.move_to_end(task_id)
        if len(self._ids) > self._capacity:
            self._ids.popitem(last=False)

    def __contains__(self, task_id: object, /) -> bool:
        return task_id in self._ids
