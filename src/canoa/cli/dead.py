"""`canoa dead`: tasks that ended badly and wait for a person; look at them, and send them again."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from canoa.cli import output
from canoa.cli.opening import open_door
from canoa.cli.options import BrokerUrl
from canoa.cli.result import TaskIdArgument
from canoa.cli.tasks import PAGE, ActionOption, AsJson, LimitOption
from canoa.cli.times import shown_time
from canoa.errors import SettingError
from canoa.recorder.views import Redriven
from canoa.urn import action_name

if TYPE_CHECKING:
    from canoa.client.door import Door
    from canoa.recorder.views import LetterView

dead_app = typer.Typer(no_args_is_help=True, help="Dead letters: look at them, and send them again.")


@dead_app.command("list")
def list_(
    broker: BrokerUrl = None, action: ActionOption = None, limit: LimitOption = 50, as_json: AsJson = False
) -> None:
    """List the dead letters that wait, the newest first."""
    with output.errors_explained(as_json=as_json):
        name = None if action is None else action_name(action)
        with closing(open_door(broker)) as door:
            found, is_more = _listed(door, name, limit)
        if as_json:
            output.data(found)
            return
        if not found:
            output.say("no dead letters wait")
            return
        columns = ["task", "action", "reason", "attempts", "dead since", "error"]
        rows = [
            [
                each.task_id,
                each.action,
                each.reason,
                str(each.attempts),
                shown_time(each.dead_at),
                output.shortened(each.error),
            ]
            for each in found
        ]
        output.table(columns, rows, free="error")
        if is_more:
            output.say(f"there are more; --limit {limit * 2} shows them")


@dead_app.command()
def show(task_id: TaskIdArgument, broker: BrokerUrl = None, as_json: AsJson = False) -> None:
    """All about one dead letter, with the worker's traceback."""
    with output.errors_explained(as_json=as_json):
        with closing(open_door(broker)) as door:
            letter = door.letter(task_id)
        if as_json:
            output.data(letter)
            return
        facts = {**vars(letter), "dead_at": shown_time(letter.dead_at)}
        trace = facts.pop("traceback")
        output.table(["what", "is"], [[name, str(value)] for name, value in facts.items()], free="is")
        if trace:
            output.line(f"\n{trace.rstrip()}")


@dead_app.command()
def redrive(
    task_ids: Annotated[
        list[str] | None, typer.Argument(help="Of these tasks.", metavar="ID", show_default=False)
    ] = None,
    broker: BrokerUrl = None,
    action: ActionOption = None,
    all_: Annotated[bool, typer.Option("--all", help="Of every task.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which ones would be sent again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Send dead letters to their actions again and print their ids. Each goes once, until its task dies again."""
    with output.errors_explained(as_json=as_json):
        if sum([bool(task_ids), action is not None, all_]) != 1:
            raise SettingError("say which: the ids of tasks, or --action NAME, or --all")
        name = None if action is None else action_name(action)
        with closing(open_door(broker)) as door:
            done = (_would if dry_run else _redriven)(door, task_ids or [], name)
        _show_redriven(done, dry_run=dry_run, as_json=as_json)
    raise typer.Exit(output.WENT_WRONG if done.skipped and task_ids else 0)


def _redriven(door: Door, task_ids: list[str], action: str | None) -> Redriven:
    return door.redrive(task_ids) if task_ids else door.redrive_all(action=action)


def _would(door: Door, task_ids: list[str], action: str | None) -> Redriven:
    """A letter that was redriven no longer waits among the others."""
    waiting = {each.task_id for each in _listed(door, action, None)[0]}
    wanted = task_ids or list(waiting)
    return Redriven(
        redriven=[each for each in wanted if each in waiting], skipped=[each for each in wanted if each not in waiting]
    )


def _show_redriven(done: Redriven, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        output.data(done)
    else:
        for task_id in done.redriven:
            output.line(task_id)
    for task_id in done.skipped:
        output.say(f"skipped {task_id}: not among the dead letters, or redriven before")
    output.say(f"{'would redrive' if dry_run else 'redrove'} {len(done.redriven)}, skipped {len(done.skipped)}")


def _listed(door: Door, action: str | None, limit: int | None) -> tuple[list[LetterView], bool]:
    """Page by page, and whether there are more. No limit: all."""
    found: list[LetterView] = []
    cursor: str | None = None
    while True:
        room = PAGE if limit is None else min(PAGE, limit - len(found))
        page = door.dead(action=action, limit=room, cursor=cursor)
        found += page.letters
        cursor = page.next
        if cursor is None or (limit is not None and len(found) >= limit):
            return found, cursor is not None
