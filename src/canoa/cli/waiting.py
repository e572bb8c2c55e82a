"""Waiting for one task as people do it: with a bar, with a limit, and with Ctrl-C.

Leaving early leaves the task alone, and says how to come back to it; `--cancel-on-interrupt` cancels it instead.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from canoa.cli import output, progress
from canoa.errors import CanoaError, ResultNotReady

if TYPE_CHECKING:
    from canoa.client.calls import Calls

QUIET_S: Final = 0.3
"""Nobody needs a bar for what ends at once."""

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


def result_of(
    calls: Calls, task_id: str, action: str, *, wait_s: float | None, since_s: float, is_cancelling: bool = False
) -> Any:
    """The result, or what ended the task instead. `since_s`: when the command began, by `time.monotonic`. Ctrl-C ends
    the program with 130."""
    try:
        return _finished(calls, task_id, action, math.inf if wait_s is None else since_s + wait_s)
    except ResultNotReady as exc:
        told = left(calls, task_id, is_cancelling)
        raise ResultNotReady(f"task {task_id} ({action}) has no result after {wait_s:g} s; {told}") from exc
    except KeyboardInterrupt:
        output.say(f"interrupted: task {task_id} ({action}): {left(calls, task_id, is_cancelling)}")
        raise typer.Exit(output.INTERRUPTED) from None


def _finished(calls: Calls, task_id: str, action: str, give_up_s: float) -> Any:
    """First quietly, then with a bar. After a while, say what it waits for: a task whose workers are away waits for
    ever, and should do so visibly."""
    with suppress(ResultNotReady):
        return calls.finish(task_id, wait_s=min(QUIET_S, _until(give_up_s)))
    with progress.task_watched(action) as watch:
        with suppress(ResultNotReady):
            return calls.finish(task_id, wait_s=min(PATIENCE_S, _until(give_up_s)), watch=watch)
        if _until(give_up_s):
            _say_what_it_waits_for(calls, task_id, action)
        return calls.finish(task_id, wait_s=None if math.isinf(give_up_s) else _until(give_up_s), watch=watch)


def _until(give_up_s: float) -> float:
    return max(0.0, give_up_s - time.monotonic())


def _say_what_it_waits_for(calls: Calls, task_id: str, action: str) -> None:
    with suppress(CanoaError):  # only a hint: the task is accepted, whatever the link does now
        depth = calls.depth(action)
        if depth is not None:
            figures = f"{depth.messages} waiting, {depth.consumers} workers"
            output.say(f"waiting for {action} (task {task_id}): {figures}")


def left(calls: Calls, task_id: str, is_cancelling: bool) -> str:
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
