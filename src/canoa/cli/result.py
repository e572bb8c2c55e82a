"""`canoa result` and `canoa cancel`: what became of one task, and how to end it."""

from __future__ import annotations

import time
from contextlib import closing, suppress
from typing import Annotated

import typer

from canoa.cli import output, waiting
from canoa.cli.opening import open_door
from canoa.cli.options import BrokerUrl
from canoa.client.calls import KeptCalls
from canoa.client.door import ENDED, Door, result_of
from canoa.client.limit import Limit
from canoa.errors import CanoaError, ResultNotReady, TaskEnded
from canoa.execution.outcome import Outcome
from canoa.recorder.views import TaskView

TaskIdArgument = Annotated[str, typer.Argument(help="The task's id.", metavar="ID", show_default=False)]


def result(
    task_id: TaskIdArgument,
    broker: BrokerUrl = None,
    wait: Annotated[float, typer.Option(min=0, help="Wait up to this many seconds for its end.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Wait as long as it takes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all that is known about it, also how it failed.")] = (
        False
    ),
) -> None:
    """Print a kept task's result as JSON; exit with 1 when it failed, or has not ended.

    While it waits, a terminal shows how far the task is. Ctrl-C ends the wait, not the task.
    """
    began_s = time.monotonic()
    limit = Limit(None if follow else wait or None)  # without either, nothing but the answer is waited for
    with output.errors_explained(as_json=as_json), closing(open_door(broker, limit=limit)) as door:
        view = door.result(task_id)
        if view.task.state != ENDED and (follow or wait):
            with suppress(TaskEnded, ResultNotReady):  # said below, with all the rest
                wait_s = None if follow else wait
                waiting.result_of(KeptCalls(door, limit), task_id, view.task.action, wait_s=wait_s, since_s=began_s)
            view = door.result(task_id)
    with output.errors_explained():
        if as_json:
            output.data(view)
        if view.task.state != ENDED:
            raise ResultNotReady(f"{_standing(view.task)}; wait for it with --wait 60 or --follow")
        value = result_of(view)
        if not as_json:
            output.data(value)


def cancel(
    task_ids: Annotated[list[str], typer.Argument(help="Their ids.", metavar="ID", show_default=False)],
    broker: BrokerUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print how each of them stands, one line per task.")] = False,
) -> None:
    """End kept tasks, unless they have ended. One that runs is interrupted where that is possible."""
    is_all_cancelled = True
    with output.errors_explained(as_json=as_json), closing(open_door(broker)) as door:
        for task_id in task_ids:
            task = door.cancel(task_id)
            is_undone = task.state != ENDED and _is_compensating(door, task_id)
            is_all_cancelled &= is_undone or task.outcome == Outcome.CANCELLED
            output.say(_standing(task) + ("; it ends once what it did is compensated" if is_undone else ""))
            if as_json:
                output.data(task)
    raise typer.Exit(0 if is_all_cancelled else output.WENT_WRONG)


def _is_compensating(door: Door, task_id: str) -> bool:
    with suppress(CanoaError):  # it is of no plan, or has just ended
        return any(step.compensates for step in door.story(task_id).steps)
    return False


def _standing(task: TaskView) -> str:
    if task.state == ENDED:
        return f"task {task.id} ({task.action}) has ended: {task.outcome}"
    far = "" if task.progress is None else f", {round(100 * task.progress)} %"
    text = f" ({task.progress_text})" if task.progress_text else ""
    return f"task {task.id} ({task.action}) is {task.state}{far}{text}"
