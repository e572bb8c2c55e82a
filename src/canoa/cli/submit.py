"""`canoa submit`: hand over tasks that are kept, of an action or of a plan, and print their ids."""

from __future__ import annotations

import time
from contextlib import closing, nullcontext
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from canoa import settings
from canoa.cli import orders, output, routed_orders, waiting, watching
from canoa.cli.opening import open_door
from canoa.cli.options import BrokerUrl
from canoa.cli.suggesting import close_names_told
from canoa.client.calls import KeptCalls
from canoa.client.door import RoutedOrder
from canoa.client.limit import Limit
from canoa.errors import SettingError
from canoa.recorder.views import SubmitOptions
from canoa.urn import action_name

if TYPE_CHECKING:
    from canoa.client.door import Door, Order
    from canoa.recorder.views import Submitted

AT_ONCE = 500

Lines = Annotated[
    str,
    typer.Option("--lines", metavar="FILE", help="Submit one task per line, each a JSON object of arguments; - stdin."),
]


def submit(
    name: Annotated[
        str,
        typer.Argument(
            help="An action (app.name, or its URN), a plan file (plan.yaml), or the name of a registered plan.",
            metavar="ACTION|PLAN",
            show_default=False,
        ),
    ],
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
    routed: Annotated[
        bool, typer.Option("--routed", help="Let a manager choose the node. Plans always are routed.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Of a routed task: draw its steps until it ends, and print the result.")
    ] = False,
    cancel_on_interrupt: waiting.CancelOnInterrupt = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: one line per task.")] = False,
) -> None:
    """Hand over a task and print its id; `canoa result ID` has its result, also tomorrow.

    It is stored when the id appears. Needs `canoa up` here, or a recorder on the broker; plans and routed tasks need a
    manager.
    """
    began_s = time.monotonic()
    is_waiting = follow or watch or wait is not None
    is_routed = routed or routed_orders.is_plan(name)
    with output.errors_explained(as_json=as_json):
        if watch and not is_routed:
            raise SettingError("--watch draws the steps of a routed task; add --routed, or use --follow")
        if lines and (is_waiting or is_routed or key is not None or arguments != "{}"):
            raise SettingError(
                "--lines goes without arguments, plans, --routed, --key, --wait, --follow and --watch; "
                "for results: canoa map"
            )
        site = settings.read({}).site or None if is_routed else None
        options = SubmitOptions(after=after, at=_time(at) if at else None, idempotency_key=key, site=site)
        called, order = (
            _order(name, arguments, options, is_routed=is_routed) if not lines else (action_name(name), None)
        )
        names_told = nullcontext() if is_routed else close_names_told(called, broker)
        limit = Limit(None if follow or watch else wait or None)  # without a wait, handing over takes what it takes
        with closing(open_door(broker, limit=limit)) as door, names_told:
            if order is None:
                _submit_lines(door, called, lines, options, as_json=as_json)
                return
            with output.interrupts_told(waiting.IN_DOUBT), routed_orders.bare_names_told(name):
                done = door.route(order) if isinstance(order, RoutedOrder) else door.submit([order])[0]
            if not is_waiting:
                _show(done, as_json=as_json)
                return
            output.say(f"task {done.id}")
            wait_s = None if follow or watch else wait
            if watch:
                result = watching.result_of(door, done.id, called, is_cancelling=cancel_on_interrupt)
            else:
                result = waiting.result_of(
                    KeptCalls(door, limit),
                    done.id,
                    called,
                    wait_s=wait_s,
                    since_s=began_s,
                    is_cancelling=cancel_on_interrupt,
                )
        output.data({**msgspec.to_builtins(done), "result": result} if as_json else result)


def _order(name: str, arguments: str, options: SubmitOptions, *, is_routed: bool) -> tuple[str, Order | RoutedOrder]:
    """What to call it, and the order."""
    if routed_orders.is_plan(name):
        return routed_orders.of_plan(name, arguments, options)
    order = orders.one(action_name(name), arguments, options)
    return order.action, routed_orders.of_action(order) if is_routed else order


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
