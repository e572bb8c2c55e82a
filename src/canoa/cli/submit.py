"""`canoa submit`: hand over tasks that are kept, and print their ids."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from canoa.cli import orders, output, waiting
from canoa.cli.opening import open_door
from canoa.cli.suggesting import close_names_told
from canoa.cli.worker import BrokerUrl
from canoa.client.calls import KeptCalls
from canoa.errors import SettingError
from canoa.recorder.views import SubmitOptions
from canoa.urn import action_name

if TYPE_CHECKING:
    from canoa.client.door import Door
    from canoa.recorder.views import Submitted

AT_ONCE = 500

Lines = Annotated[
    str,
    typer.Option("--lines", metavar="FILE", help="Submit one task per line, each a JSON object of arguments; - stdin."),
]


def submit(
    name: orders.ActionArgument,
    arguments: orders.JsonArgument = "{}",
    broker: BrokerUrl = None,
    lines: Lines = "",
    after: Annotated[float | None, typer.Option(min=0, help="Start it this many seconds from now.")] = None,
    at: Annotated[
        str, typer.Option(metavar="TIME", help="Start it not before: 2026-07-01T08:00, local unless it says otherwise.")
    ] = "",
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: the same key for the same action is the same task.")
    ] = None,
    wait: Annotated[
        float | None, typer.Option(min=0, help="Wait up to this many seconds and print the result.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait as long as it takes and print the result.")] = False,
    cancel_on_interrupt: waiting.CancelOnInterrupt = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: one line per task.")] = False,
) -> None:
    """Hand over a task and print its id; `canoa result ID` has its result, also tomorrow.

    It is stored when the id appears. Needs `canoa up` here, or a recorder on the broker.
    """
    is_waiting = follow or wait is not None
    with output.errors_explained(as_json=as_json):
        action = action_name(name)
        options = SubmitOptions(after=after, at=_time(at) if at else None, idempotency_key=key)
        if lines and (is_waiting or key is not None or arguments != "{}"):
            raise SettingError("--lines goes without arguments, --key, --wait and --follow; for results: canoa map")
        order = None if lines else orders.one(action, arguments, options)
        with closing(open_door(broker)) as door, close_names_told(action, broker):
            if order is None:
                _submit_lines(door, action, lines, options, as_json=as_json)
                return
            with output.interrupts_told(waiting.IN_DOUBT):
                (done,) = door.submit([order])
            if not is_waiting:
                _show(done, as_json=as_json)
                return
            output.say(f"task {done.id}")
            wait_s = None if follow else wait
            result = waiting.result_of(
                KeptCalls(door), done.id, action, wait_s=wait_s, is_cancelling=cancel_on_interrupt
            )
        output.data({**msgspec.to_builtins(done), "result": result} if as_json else result)


def _submit_lines(door: Door, action: str, path: str, options: SubmitOptions, *, as_json: bool) -> None:
    count = 0
    try:
        with output.interrupts_told("the last lines may have been submitted or not"):
            for part in orders.in_parts(orders.lines(action, path, options), AT_ONCE):
                for done in door.submit(part):
                    _show(done, as_json=as_json)
                count += len(part)
    finally:
        output.say(f"submitted {count} tasks")


def _show(done: Submitted, *, as_json: bool) -> None:
    if as_json:
        output.data(done)
    else:
        output.line(done.id)


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError) as exc:
        raise SettingError(f"--at {text!r:.40} is no time ({exc}); write 2026-07-01T08:00, or with +02:00") from exc
