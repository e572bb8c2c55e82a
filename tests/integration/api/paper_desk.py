"""A desk on paper: it accepts what it is given, and a test ends it, or says what goes wrong.

For what the API does with a desk's answers; what a real desk answers is tested with a real one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from canoa.errors import UnknownAction, UnknownTask
from canoa.recorder.desk import Desk
from canoa.recorder.metrics import RecorderStats
from canoa.recorder.routed_desk import RoutedDesk
from canoa.recorder.views import (
    ActionView,
    LetterPage,
    LetterView,
    Redriven,
    Request,
    ResultView,
    Submitted,
    TaskPage,
    TaskView,
)
from canoa.wire.event import Event
from canoa.wire.ids import new_task_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from canoa.recorder.token_desk import TokenDesk

AT = datetime(2025, 6, 1, 12, 30, tzinfo=UTC)

WAITING = TaskView(
    id="",
    action="",
    state="waiting",
    outcome=None,
    submitted_at=AT,
    due_at=None,
    started_at=None,
    ended_at=None,
    attempts=0,
    node_id=None,
    error=None,
    progress=None,
    progress_text=None,
    run=0,
)


class PaperDesk(Desk):
    def __init__(self, tokens: TokenDesk | None = None) -> None:  # not of a recorder
        self._stats = RecorderStats()
        self.tokens = tokens
        self.routed = RoutedDesk(max_payload_bytes=100_000)
        self.requests: list[Request] = []
        self.asked: dict[str, Any] = {}
        self.error: Exception | None = None
        self.listeners: list[asyncio.Queue[Event]] = []
        self.listened = asyncio.Event()
        self._views: dict[str, ResultView] = {}
        self._ended: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.waited = asyncio.Event()

    @property
    def stats(self) -> RecorderStats:
        return self._stats

    # --- What a test does -----------------------------------------------------------------------

    def fails_with(self, error: Exception | None) -> None:
        """From now on."""
        self.error = error

    def end(self, task_id: str, *, outcome: str = "ok", **said: Any) -> None:
        view = self._views[task_id]
        ended = replace(view.task, state="ended", outcome=outcome, ended_at=AT)
        self._views[task_id] = ResultView(task=ended, **said)
        self._ended[task_id].set()

    def tell(self, kind: str, **said: Any) -> None:
        for listener in self.listeners:
            listener.put_nowait(Event(kind=kind, at=AT, **said))

    # --- What the API asks ----------------------------------------------------------------------

    async def submit(self, request: Request) -> Submitted:
        (submitted,) = await self.submit_many([request])
        return submitted

    async def submit_many(self, requests: list[Request]) -> list[Submitted]:
        self._raise()
        for request in requests:
            if not request.action.startswith("shop."):
                raise UnknownAction(request.action)
        self.requests += requests
        return [self._accepted(request) for request in requests]

    def _accepted(self, request: Request) -> Submitted:
        task_id = new_task_id()
        self._views[task_id] = ResultView(task=replace(WAITING, id=task_id, action=request.action))
        return Submitted(id=task_id, action=request.action)

    async def task(self, task_id: str) -> TaskView:
        return (await self.result(task_id)).task

    async def result(self, task_id: str, *, wait_s: float = 0) -> ResultView:
        self._raise()
        if task_id not in self._views:
            raise UnknownTask(task_id)
        if wait_s:
            self.waited.set()
            try:
                async with asyncio.timeout(wait_s):
                    await self._ended[task_id].wait()
            except TimeoutError:
                pass
        return self._views[task_id]

    async def cancel(self, task_id: str) -> TaskView:
        if (await self.task(task_id)).outcome is None:
            self.end(task_id, outcome="cancelled")
        return await self.task(task_id)

    async def tasks(self, **wanted: Any) -> TaskPage:
        self._raise()
        self.asked = wanted
        return TaskPage(tasks=[view.task for view in self._views.values()], next=None)

    async def dead(self, **wanted: Any) -> LetterPage:
        self._raise()
        self.asked = wanted
        return LetterPage(letters=[], next="further")

    async def letter(self, task_id: str) -> LetterView:
        raise UnknownTask(task_id)

    async def redrive(self, task_ids: Sequence[str]) -> Redriven:
        return Redriven(redriven=list(task_ids), skipped=[])

    async def redrive_all(self, *, action: str | None = None) -> Redriven:
        return Redriven(redriven=[f"all of {action}"], skipped=[])

    async def actions(self) -> list[ActionView]:
        self._raise()
        return [ActionView(action="shop.resize", parameters="(path: str)", runs="thread", timeout_s=30.0, retry=0)]

    async def events(
        self, *, task_id: str | None = None, action: str | None = None, node_id: str | None = None
    ) -> AsyncGenerator[Event, None]:
        self._raise()
        self.asked = {"task_id": task_id, "action": action, "node_id": node_id}
        mine: asyncio.Queue[Event] = asyncio.Queue()
        self.listeners.append(mine)
        self.listened.set()
        try:
            while True:
                yield await mine.get()
        finally:
            self.listeners.remove(mine)

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error
