"""Tasks of this process that a store may have accepted without our hearing so. On a broker that forgets nothing else
would publish them before the next start.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from canoa.repeating import REPEAT_AFTER_S
from canoa.store.port import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.repeating import Errands
    from canoa.store.port import NewTask, Store
    from canoa.vocabulary import TaskId


MAX_DOUBTS: Final = 10_000
"""While a store is away, everybody's submits fail. More remembers longer, and costs memory; the oldest then wait for
the next start."""


class Doubts:
    """`publish` is called for those that were accepted after all."""

    def __init__(self, store: Store, errands: Errands, publish: Callable[[NewTask], None]) -> None:
        self._store = store
        self._errands = errands
        self._publish = publish
        self._open: dict[TaskId, NewTask] = {}
        self._settling: asyncio.Task[None] | None = None

    def add(self, task: NewTask) -> None:
        self._open[task.id] = task
        if len(self._open) > MAX_DOUBTS:
            del self._open[next(iter(self._open))]
        if self._settling is None or self._settling.done():
            self._settling = self._errands.start(self._settle, "settle_doubts")

    def take(self, task_id: TaskId) -> bool:
        """Whether it is in doubt. If so, whoever asks now settles it: by submitting it again."""
        return self._open.pop(task_id, None) is not None

    async def _settle(self) -> None:
        await asyncio.sleep(REPEAT_AFTER_S)  # the store has just failed
        while self._open:
            task = next(iter(self._open.values()))
            row = await self._store.task(task.id)
            if self._open.get(task.id) is not task:
                continue  # submitted again meanwhile
            del self._open[task.id]
            if row is not None and row.state is not State.ENDED:
                self._publish(task)
