"""Waiting for one task as people do it: with a bar, with a limit, and with Ctrl-C.

Leaving early leaves the task alone, and says how to come back to it; `--cancel-on-interrupt` cancels it instead.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from canoa.cli import output, progress
from canoa.errors import CanoaError, ResultNotReady

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.client.calls import Calls
    from canoa.recorder.views import TaskView

PATIENCE_S: Final = 3.0
IN_DOUBT: Final = "the task may have been submitted or not"
"""What is known when Ctrl-C comes before the answer to a submit."""

CancelOnInterrupt = Annotated[
    bool,
    typer.Option(
        "--cancel-on-interrupt",
        help="Cancel the task on Ctrl-C, or when the wait is over. Without: it goes on, and you are told its id.",
    ),
]


def result_of(calls: Calls, task_id: str, action: str, *, wait_s: float | None, is_cancelling: bool = False) -> Any:
    """The result, or what ended the task instead. Ctrl-C ends the program with 130."""
    try:
        with progress.task_watched(action) as watch:
            return _finished(calls, task_id, action, wait_s, watch)
    except ResultNotReady as exc:
        raise ResultNotReady(f"{exc}; {_left(calls, task_id, is_cancelling)}") from exc
    except KeyboardInterrupt:
        output.say(f"interrupted: task {task_id} ({action}): {_left(calls, task_id, is_cancelling)}")
        raise typer.Exit(output.INTERRUPTED) from None


def _finished(
    calls: Calls, task_id: str, action: str, wait_s: float | None, watch: Callable[[TaskView], None] | None
) -> Any:
    """After a while, say what it waits for: a task whose workers are away waits for ever, and should do so visibly."""
    if wait_s is not None and wait_s <= PATIENCE_S:
        return calls.finish(task_id, wait_s=wait_s, watch=watch)
    began_s = time.monotonic()
    try:
        return calls.finish(task_id, wait_s=PATIENCE_S, watch=watch)
    except ResultNotReady:
        _say_what_it_waits_for(calls, task_id, action)
    left_s = None if wait_s is None else max(0.0, wait_s - (time.monotonic() - began_s))
    try:
        return calls.finish(task_id, wait_s=left_s, watch=watch)
    except ResultNotReady as exc:
        raise ResultNotReady(f"task {task_id} ({action}) has no result after {wait_s:g} s") from exc


def _say_what_it_waits_for(calls: Calls, task_id: str, action: str) -> None:
    with suppress(CanoaError):  # only a hint: the task is accepted, whatever the link does now
        depth = calls.depth(action)
        if depth is not None:
            figures = f"{depth.messages} waiting, {depth.consumers} workers"
            output.say(f"waiting for {action} (task {task_id}): {figures}")


def _left(calls: Calls, task_id: str, is_cancelling: bool) -> str:
    """What becomes of a task that nobody waits for any longer."""
    if is_cancelling:
        try:
            calls.cancel(task_id)
        except CanoaError as exc:
            return f"it could not be cancelled: {exc}"
        return "it was cancelled"
    if not calls.is_kept:
        return "it goes on, but its result is for nobody; use --cancel-on-interrupt, or `canoa submit` to have it kept"
    command = output.program()
    return f"it goes on; `{command} result {task_id} --follow` waits again, `{command} cancel {task_id}` ends it"
