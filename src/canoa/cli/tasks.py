"""`canoa tasks`: the tasks that are kept, the newest first; or all that is known about one."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from canoa.cli import output
from canoa.cli.opening import open_door
from canoa.cli.options import BrokerUrl
from canoa.cli.times import shown_time, shown_took
from canoa.errors import SettingError
from canoa.execution.outcome import Outcome
from canoa.urn import action_name

if TYPE_CHECKING:
    from canoa.client.door import Door
    from canoa.recorder.views import TaskView

PAGE: Final = 500

ActionOption = Annotated[str | None, typer.Option("--action", help="Only of this action.", show_default=False)]
LimitOption = Annotated[int, typer.Option(min=1, help="How many at most.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def tasks(
    task_id: Annotated[str | None, typer.Argument(help="Only this one, in full.", metavar="ID")] = None,
    broker: BrokerUrl = None,
    action: ActionOption = None,
    state: Annotated[str | None, typer.Option(help="waiting, running or ended.", show_default=False)] = None,
    outcome: Annotated[
        str | None,
        typer.Option(
            help="How it ended: ok, failed, timed_out, cancelled, expired, refused or poisoned.", show_default=False
        ),
    ] = None,
    limit: LimitOption = 50,
    as_json: AsJson = False,
) -> None:
    """List the tasks that are kept, the newest first."""
    with output.errors_explained(as_json=as_json):
        _check_standing(state, outcome)
        wanted = {"action": action and action_name(action), "state": state, "outcome": outcome}
        with closing(open_door(broker)) as door:
            if task_id is not None:
                _show_one(door.task(task_id), as_json=as_json)
                return
            found, is_more = _listed(door, wanted, limit)
        if as_json:
            output.data(found)
            return
        if not found:
            output.say("no tasks are kept that fit")
            return
        _show_all(found)
        if is_more:
            output.say(f"there are more; --limit {limit * 2} shows them")


def _check_standing(state: str | None, outcome: str | None) -> None:
    """The table has both in one column, so one is easily taken for the other. Raises `SettingError`."""
    from canoa.store.port import State

    states, outcomes = list(State), [each for each in Outcome if each is not Outcome.RETRIED]
    if state is not None and state not in states:
        hint = f"it is how a task ended: --outcome {state}; " if state in outcomes else ""
        raise SettingError(f"--state {state!r:.40} is no state; {hint}states are {', '.join(states)}")
    if outcome is not None and outcome not in outcomes:
        hint = f"it is where a task stands: --state {outcome}; " if outcome in states else ""
        raise SettingError(f"--outcome {outcome!r:.40} is no outcome; {hint}outcomes are {', '.join(outcomes)}")


def _listed(door: Door, wanted: dict[str, Any], limit: int) -> tuple[list[TaskView], bool]:
    """Page by page, and whether there are more."""
    found: list[TaskView] = []
    cursor: str | None = None
    while True:
        page = door.tasks(**wanted, limit=min(PAGE, limit - len(found)), cursor=cursor)
        found += page.tasks
        cursor = page.next
        if cursor is None or len(found) >= limit:
            return found, cursor is not None


def _show_all(found: list[TaskView]) -> None:
    columns = ["id", "action", "state", "attempts", "submitted", "took", "says"]
    output.table(columns, [_row(task) for task in found], free="says")


def _row(task: TaskView) -> list[str]:
    return [
        task.id,
        task.action,
        task.outcome or task.state,
        str(task.attempts),
        shown_time(task.submitted_at),
        shown_took(task),
        output.shortened(task.error or _far(task)),
    ]


def _show_one(task: TaskView, *, as_json: bool) -> None:
    if as_json:
        output.data(task)
        return
    known = {name: value for name, value in vars(task).items() if value is not None}
    rows = [[name, shown_time(value) if isinstance(value, datetime) else str(value)] for name, value in known.items()]
    output.table(["what", "is"], rows, free="is")


def _far(task: TaskView) -> str:
    far = "" if task.progress is None or task.outcome else f"{round(100 * task.progress)} %"
    return " ".join(filter(None, [far, task.progress_text]))
