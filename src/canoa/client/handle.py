"""A handle on one submitted task. It takes the first answer, and counts the rest as duplicates."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from canoa.errors import CanoaError, DeliveryUnknown, ResultNotReady, TaskCancelled

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.client.session import Session
    from canoa.vocabulary import ActionName, TaskId

R = TypeVar("R")


class Failed(Generic[R]):
    """An error kept as a value: a future that nobody awaits must not complain when it is forgotten."""

    __slots__ = ("error",)

    def __init__(self, error: CanoaError) -> None:
        self.error = error


class Handle(Generic[R]):
    """Await `result()`. Forgetting a handle does no harm: the task runs all the same."""

    def __init__(self, session: Session, task_id: TaskId, action: ActionName, *, is_kept: bool = False) -> None:
        self.id = task_id
        self.action = action
        self.is_kept = is_kept  # in a store, whatever its caller asked for
        self.send_span: Any = None  # of OpenTelemetry, until the broker has the task
        self._session = session
        self._ended: asyncio.Future[R | Failed[R]] = session.loop.create_future()
        self._waiting: list[asyncio.Future[None]] = []

    def __repr__(self) -> str:
        return f"<Handle {self.action} {self.id} {'done' if self.is_done else 'waiting'}>"

    @property
    def is_done(self) -> bool:
        return self._ended.done()

    async def result(self, timeout: float | None = None) -> R:
        """The action's result, or what ended the task instead (`ActionFailed`, `ActionTimedOut`, `TaskCancelled`, …).

        After `timeout` seconds it raises `ResultNotReady`, and the task goes on. Cancelling the wait cancels nothing.
        """
        if not self._ended.done():
            await self._wait(timeout)
        ended = self._ended.result()
        if isinstance(ended, Failed):
            raise ended.error.with_traceback(None)  # asked again, it would grow with every question
        return ended

    async def _wait(self, timeout: float | None) -> None:
        if timeout is None:
            await self._until_ended()
            return
        try:
            async with asyncio.timeout(timeout):
                await self._until_ended()
        except TimeoutError:
            if not self._ended.done():  # both in the same turn of the loop: the result wins
                raise ResultNotReady(f"task {self.id} ({self.action}) has no result after {timeout:g} s") from None

    async def _until_ended(self) -> None:
        """With a future of its own for each who waits: `asyncio.shield` would wake him a turn of the loop later."""
        waiting = self._session.loop.create_future()
        self._waiting.append(waiting)
        try:
            await waiting
        finally:
            self._waiting.remove(waiting)

    async def cancel(self) -> None:
        """End the handle now (`TaskCancelled`) and tell the workers: one that runs it interrupts it, one that has not
        started it skips it. A worker that does not hear of it may still run it."""
        if self._ended.done():
            return
        text = f"task {self.id} ({self.action}) was cancelled by its caller"
        self._session.replies.drop(self, TaskCancelled(text, task_id=self.id))
        await self._session.announce_cancel(self.id)
        if self.is_kept:
            await self._session.cancel_kept(self.id)

    # --- For the session --------------------------------------------------------------------------

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._session.loop

    def on_ended(self, callback: Callable[[asyncio.Future[R | Failed[R]]], object]) -> None:
        """It hears of the end a turn of the loop later, also if it has come already."""
        self._ended.add_done_callback(callback)

    @property
    def is_answered(self) -> bool:
        """Done, and not because the session lost touch with it."""
        if not self._ended.done():
            return False
        ended = self._ended.result()
        return not (isinstance(ended, Failed) and isinstance(ended.error, DeliveryUnknown))

    def succeed(self, value: R) -> None:
        self._end(value)

    def fail(self, error: CanoaError) -> None:
        self._end(Failed(error))

    def _end(self, ended: R | Failed[R]) -> None:
        if not self._ended.done():
            self._ended.set_result(ended)
            for waiting in self._waiting:
                if not waiting.done():
                    waiting.set_result(None)
