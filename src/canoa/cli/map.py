"""`canoa map`: run an action once per line of a file, and print the results in that order."""

from __future__ import annotations

from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from canoa.cli import orders, output, progress
from canoa.cli.opening import open_calls
from canoa.cli.options import BrokerUrl
from canoa.cli.suggesting import close_names_told
from canoa.errors import CanoaError, TaskEnded
from canoa.urn import action_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canoa.client.calls import Calls, Started
    from canoa.client.door import Order

AT_ONCE = 100


def map_(
    name: orders.ActionArgument,
    path: Annotated[
        str, typer.Argument(metavar="FILE", help="One JSON object of arguments per line; - stdin.", show_default=False)
    ],
    broker: BrokerUrl = None,
    in_flight: Annotated[int, typer.Option(min=1, help="How many may be under way at once.")] = 1000,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every end as an object: number, task id, and result or error.")
    ] = False,
) -> None:
    """Run an action once per line of a file; results go to stdout in the same order, failures to stderr.

    Exits with 1 when any failed. Ctrl-C submits no more; what was submitted goes on.
    """
    failed = 0
    with output.errors_explained(as_json=as_json):
        action = action_name(name)
        source = orders.lines(action, path)
        with (
            closing(open_calls(broker, action.partition(".")[0])) as calls,
            progress.many_counted(action, orders.count_lines(path)) as count,
            close_names_told(action, broker),
            output.interrupts_told("no more are submitted; what was submitted goes on"),
        ):
            for number, (task_id, end) in enumerate(_ends(calls, source, in_flight), start=1):
                is_well = not isinstance(end, CanoaError)
                failed += not is_well
                _show(number, task_id, end, as_json=as_json)
                count(is_well)
    if failed:
        output.fail(f"{failed} failed", output.WENT_WRONG)


def _ends(calls: Calls, source: Iterator[Order], in_flight: int) -> Iterator[tuple[str | None, Any]]:
    """Task id, and the result or the error. Takes from `source` only as results come back."""
    started: deque[Started] = deque()
    for part in orders.in_parts(source, min(AT_ONCE, in_flight)):
        while len(started) + len(part) > in_flight:
            yield _end(calls, started.popleft())
        started += calls.start(part)
    while started:
        yield _end(calls, started.popleft())


def _end(calls: Calls, started: Started) -> tuple[str | None, Any]:
    if isinstance(started, CanoaError):
        return None, started
    try:
        return started, calls.finish(started, wait_s=None)
    except TaskEnded as exc:
        return started, exc


def _show(number: int, task_id: str | None, end: Any, *, as_json: bool) -> None:
    is_error = isinstance(end, CanoaError)
    if is_error:
        output.say(f"number {number} ({f'task {task_id}' if task_id else 'not submitted'}): {end}")
    if as_json:
        told = {"error": {"type": type(end).__name__, "message": str(end)}} if is_error else {"result": end}
        output.data({"number": number, "task_id": task_id, **told})
    elif not is_error:
        output.data(end)
