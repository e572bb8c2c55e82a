"""The tasks this worker heard are cancelled: a bounded memory, oldest forgotten first."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from canoa.vocabulary import TaskId


class CancelledTasks:
    """`capacity`: notices come before, during or after their task; what is forgotten too early just runs."""

    def __init__(self, capacity: int = 10_000) -> None:
        self._ids: OrderedDict[TaskId, None] = OrderedDict()
        self._capacity = capacity

    def add(self, task_id: TaskId) -> None:
        self._ids[task_id] = None
        self._ids.move_to_end(task_id)
        if len(self._ids) > self._capacity:
            self._ids.popitem(last=False)

    def __contains__(self, task_id: object, /) -> bool:
        return task_id in self._ids
