"""`canoa call`: run one action and print its result."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from typing import Annotated

import typer

from canoa import settings as settings_module
from canoa.app import Canoa
from canoa.cli import output
from canoa.cli.loading import require_real_broker
from canoa.cli.worker import BrokerUrl
from canoa.client.handle import Handle
from canoa.errors import ArgumentsRefused, CanoaError, ResultNotReady, Undecodable
from canoa.urn import action_name
from canoa.wire.codec import Codec, TypeMismatch

PATIENCE_S = 3.0
_object = Codec[dict[str, object]](dict[str, object])


def call(
    name: Annotated[str, typer.Argument(help="The action: app.name, or its URN.", show_default=False)],
    arguments: Annotated[str, typer.Argument(help="A JSON object of its parameters; - reads it from stdin.")] = "{}",
    broker: BrokerUrl = None,
    timeout: Annotated[float | None, typer.Option(help="Give up waiting after this many seconds.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print task id and time, too.")] = False,
) -> None:
    """Run one action, wait, and print its result as JSON."""
    with output.errors_explained(as_json=as_json):
        action = action_name(name)
        body = _checked(sys.stdin.read() if arguments == "-" else arguments)
        url = settings_module.read({"broker": broker}).broker
        require_real_broker(url, "call")

        async def main() -> None:
            began_s = time.perf_counter()
            async with Canoa(action.partition(".")[0], broker=url) as app:
                handle = await app.submit_raw(action, body)
                result = await _waited(app, handle, timeout)
            seconds = round(time.perf_counter() - began_s, 4)
            told = {"task_id": handle.id, "action": action, "seconds": seconds, "result": result}
            output.data(told if as_json else result)

        asyncio.run(main())


async def _waited(app: Canoa, handle: Handle[object], timeout: float | None) -> object:
    """After a while, say what it waits for: a task whose workers are away waits for ever, and should do so visibly."""
    try:
        return await handle.result(PATIENCE_S if timeout is None else min(timeout, PATIENCE_S))
    except ResultNotReady:
        if timeout is not None and timeout <= PATIENCE_S:
            raise
    with suppress(CanoaError):  # only a hint: the task is accepted, whatever the link does now
        depth = await app.depth(handle.action)
        figures = f"{depth.messages} waiting, {depth.consumers} workers"
        output.say(f"waiting for {handle.action} (task {handle.id}): {figures}")
    return await handle.result(None if timeout is None else timeout - PATIENCE_S)


def _checked(text: str) -> bytes:
    body = text.encode()
    try:
        _object.decode(body, None)
    except Undecodable as exc:
        raise ArgumentsRefused(f"the arguments are not JSON ({exc.__cause__ or exc}): {text[:80]}") from exc
    except TypeMismatch as exc:
        raise ArgumentsRefused(f'the arguments must be a JSON object, such as \'{{"path": "a.png"}}\': {exc}') from exc
    return body
