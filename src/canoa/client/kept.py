"""A task that a store keeps, found again by its id. Each question goes to the recorders like any other call."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from canoa.client.asking import GRACE_S, MAX_WAIT_S, ask
from canoa.client.door import result_of
from canoa.errors import NobodyAnswers, ResultNotReady, StoreFull, StoreUnreachable, UnknownTask
from canoa.recorder.views import ResultView, TaskView
from canoa.wire.codec import ContentType

if TYPE_CHECKING:
    from canoa.action import Action
    from canoa.app import Canoa
    from canoa.vocabulary import TaskId

R = TypeVar("R")
T = TypeVar("T")

TROUBLE: Final = (NobodyAnswers, StoreUnreachable, StoreFull)
"""What passes by itself, as when a recorder is started anew."""

PATIENCE_S: Final = 30.0
"""How long a wait for a result goes on with nothing but trouble."""

ASK_AGAIN_S: Final = 0.5


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
        """The action's result, or what ended the task instead; after `timeout` seconds `ResultNotReady`, or a little
        later (`GRACE_S`) where nobody answers.

        Trouble of recorders and their store is waited out for a while (`PATIENCE_S`), then raised (`NobodyAnswers`,
        `StoreUnreachable`, `StoreFull`).
        """
        give_up_s = math.inf if timeout is None else time.monotonic() + timeout
        try:
            async with asyncio.timeout(None if timeout is None else timeout + GRACE_S):
                seen = await self._wait_ended(give_up_s)
        except TimeoutError:
            raise ResultNotReady(f"no recorder told a result of task {self.id} within {timeout:g} s") from None
        if seen.task.outcome is None:
            raise ResultNotReady(f"task {self.id} ({seen.task.action}) has no result after {timeout:g} s")
        return self._ended(seen)

    async def _wait_ended(self, give_up_s: float) -> ResultView:
        """As soon as it ended, or as it stands at `give_up_s`."""
        heard_s = time.monotonic()
        while True:
            wait_s = max(0.0, min(MAX_WAIT_S, give_up_s - time.monotonic()))
            try:
                seen = await self._ask("result", ResultView, wait_s=wait_s)
            except TROUBLE:
                if time.monotonic() - heard_s > PATIENCE_S:
                    raise
                await asyncio.sleep(ASK_AGAIN_S)
                continue
            heard_s = time.monotonic()
            if seen.task.outcome is not None or heard_s >= give_up_s:
                return seen

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
