"""A task that a store keeps, found again by its id. Each question goes to the recorders like any other call."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from canoa.client.asking import MAX_WAIT_S, ask
from canoa.client.door import result_of
from canoa.errors import ResultNotReady, UnknownTask
from canoa.recorder.views import ResultView, TaskView
from canoa.wire.codec import ContentType

if TYPE_CHECKING:
    from canoa.action import Action
    from canoa.app import Canoa
    from canoa.vocabulary import TaskId

R = TypeVar("R")
T = TypeVar("T")


class KeptHandle(Generic[R]):
    """Made by `app.handle(id)`. Asks anew each time; raises `UnknownTask`, and `NobodyKeeps` without a recorder."""

    def __init__(self, app: Canoa, task_id: TaskId, action: Action[..., Any, R] | None) -> None:
        self.id = task_id
        self._app = app
        self._action = action

    def __repr__(self) -> str:
        return f"<KeptHandle {self.id}>"

    async def status(self) -> TaskView:
        """How it stands: state, outcome, attempts, progress."""
        return await self._ask("task", TaskView)

    async def result(self, timeout: float | None = None) -> R:
        """The action's result, or what ended the task instead; after `timeout` seconds `ResultNotReady`."""
        give_up_s = None if timeout is None else time.monotonic() + timeout
        while True:
            wait_s = MAX_WAIT_S if give_up_s is None else max(0.0, min(MAX_WAIT_S, give_up_s - time.monotonic()))
            seen = await self._ask("result", ResultView, wait_s=wait_s)
            if seen.task.outcome is not None:
                return self._ended(seen)
            if give_up_s is not None and time.monotonic() >= give_up_s:
                raise ResultNotReady(f"task {self.id} ({seen.task.action}) has no result after {timeout:g} s")

    async def cancel(self) -> TaskView:
        """End it, unless it has ended; workers that hear of it skip or interrupt it."""
        return await self._ask("cancel", TaskView)

    def _ended(self, seen: ResultView) -> R:
        value = result_of(seen)
        if self._action is None:
            return value  # type: ignore[no-any-return]
        raw = msgspec.json.encode(value)
        return self._action.signature.result.decode(raw, ContentType.JSON.value)  # type: ignore[no-any-return]

    async def _ask(self, name: str, kind: type[T], **more: float) -> T:
        body = msgspec.json.encode({"task_id": self.id, **more})
        try:
            answer = await ask(self._app, name, body, wait_s=more.get("wait_s", 0))
        except UnknownTask as exc:  # told by a recorder, it has no facts
            raise UnknownTask(self.id) from exc
        return msgspec.convert(answer, kind)
