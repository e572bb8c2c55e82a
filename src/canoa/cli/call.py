"""`canoa call`: run one action and print its result."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Annotated

import typer

from canoa.cli import orders, output, waiting
from canoa.cli.opening import open_calls
from canoa.cli.options import BrokerUrl
from canoa.cli.suggesting import close_names_told
from canoa.client.limit import Limit
from canoa.urn import action_name


def call(
    name: orders.ActionArgument,
    arguments: orders.JsonArgument = "{}",
    broker: BrokerUrl = None,
    timeout: Annotated[float | None, typer.Option(min=0, help="Give up waiting after this many seconds.")] = None,
    cancel_on_interrupt: waiting.CancelOnInterrupt = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print task id and time, too.")] = False,
) -> None:
    """Run one action, wait, and print its result as JSON.

    With a broker, nothing but a worker is needed, and the result is for this command alone. With the memory broker it
    goes through the API of `canoa up`, which keeps it.
    """
    with output.errors_explained(as_json=as_json):
        action = action_name(name)
        order = orders.one(action, arguments)
        with closing(open_calls(broker, action.partition(".")[0], limit=Limit(timeout or None))) as calls:
            began_s = time.monotonic()
            with close_names_told(action, broker), output.interrupts_told(waiting.IN_DOUBT):
                (task_id,) = calls.start([order])
            if not isinstance(task_id, str):
                raise task_id
            result = waiting.result_of(
                calls, task_id, action, wait_s=timeout, since_s=began_s, is_cancelling=cancel_on_interrupt
            )
            seconds = round(time.monotonic() - began_s, 4)
        told = {"task_id": task_id, "action": action, "seconds": seconds, "result": result}
        output.data(told if as_json else result)
