"""One coroutine, run inside a task that outlives it.

A task per delivery would cost a third of what a no-op action takes. So a runner's own task drives the action's
coroutine, in a context of its own, and prepares for interruption only once it really waits for something.
"""

from __future__ import annotations

import asyncio
import enum
import types
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from contextvars import Context as Variables

T = TypeVar("T")


class Interruption(enum.Enum):
    """Why an attempt is ended from outside."""

    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    DRAINED = "drained"


class Attempt:
    """One run that can be interrupted from outside, while it waits."""

    __slots__ = ("_task", "_timer", "interrupted_by", "on_interrupt")

    def __init__(self) -> None:
        self.interrupted_by: Interruption | None = None
        self.on_interrupt: Callable[[], None] | None = None
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def interrupt(self, why: Interruption) -> None:
        """Cancels what it waits for. The first reason stays; without a waiting run there is nothing to interrupt."""
        if self._task is None or self.interrupted_by is not None:
            return
        self.interrupted_by = why
        if self.on_interrupt is not None:
            self.on_interrupt()
        self._task.cancel()

    @property
    def is_waiting(self) -> bool:
        return self._task is not None

    def begin_wait(self, time_limit_s: float | None) -> None:
        self._task = asyncio.current_task()
        if time_limit_s is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(time_limit_s, self.interrupt, Interruption.TIMED_OUT)

    def end(self) -> None:
        """Take back the cancellation that was ours, so that the runner's task can go on to the next run."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and self.interrupted_by is not None:
            self._task.uncancel()
        self._task = None


@types.coroutine
def drive(
    coroutine: Coroutine[Any, Any, T], variables: Variables, on_first_wait: Callable[[], None]
) -> Generator[Any, Any, T]:
    """Run it to its end in the caller's task, every step within `variables`; whatever it changes there stays there."""
    try:
        awaited = variables.run(coroutine.send, None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    on_first_wait()
    while True:
        try:
            value = yield awaited
        except BaseException as exc:
            step: Callable[[Any], Any] = coroutine.throw
            argument: Any = exc
        else:
            step, argument = coroutine.send, value
        try:
            awaited = variables.run(step, argument)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
