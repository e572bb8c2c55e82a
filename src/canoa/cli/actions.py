"""`canoa actions`: what an app offers, what waits for it, and declaring its queues before the first worker."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from typer.core import TyperGroup

from canoa.broker import topology
from canoa.cli import output
from canoa.cli.loading import load_app, require_real_broker
from canoa.cli.opening import open_door
from canoa.cli.options import BrokerUrl, Target
from canoa.errors import QueueMissing, SettingError

if TYPE_CHECKING:
    from canoa.app import Canoa
    from canoa.broker.port import Broker


class _ListIsDefault(TyperGroup):
    """`canoa actions shop:app` means `canoa actions list shop:app`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_other = bool(args) and (args[0] in self.commands or args[0] in ("-h", "--help"))
        return super().parse_args(ctx, args if is_other else ["list", *args])


actions_app = typer.Typer(cls=_ListIsDefault, help="What an app offers, and what waits for it on the broker.")
WhichApp = Annotated[
    str | None,
    typer.Argument(help="The app, as module:app.", metavar="MODULE:APP", envvar="CANOA_APP", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@actions_app.command("list")
def list_(target: WhichApp = None, broker: BrokerUrl = None, as_json: AsJson = False) -> None:
    """Its actions; with a broker, also how many tasks wait and how many workers there are.

    Without an app: what `canoa up` offers in this folder.
    """
    with output.errors_explained():
        rows = _of_app(target, broker) if target else _of_whoever_answers(broker)
        if as_json:
            output.data(rows)
            return
        columns = list(rows[0]) if rows else ["action"]
        output.table(columns, [[_shown(row[column]) for column in columns] for row in rows], free="parameters")


@actions_app.command()
def declare(target: Target, broker: BrokerUrl = None, as_json: AsJson = False) -> None:
    """Create its queues, so that tasks can be submitted before the first worker starts."""
    with output.errors_explained():
        app = load_app(target, broker)
        require_real_broker(app.settings.broker, "actions declare")
        asyncio.run(_declare(app))
        names = list(app.actions)
        if as_json:
            output.data(names)
        else:
            output.say(f"declared the queues of {len(names)} actions: {', '.join(names)}")


def _of_app(target: str, broker: str | None) -> list[dict[str, Any]]:
    app = load_app(target, broker)
    rows = [_described(action) for action in app.actions.values()]
    if not app.settings.is_memory:
        asyncio.run(_add_depths(app, rows))
    return rows


def _of_whoever_answers(broker: str | None) -> list[dict[str, Any]]:
    with closing(open_door(broker)) as door:
        rows: list[dict[str, Any]] = msgspec.to_builtins(door.actions())
    if not rows:
        raise SettingError("a recorder serves any app and knows the actions of none; name one: canoa actions shop:app")
    return rows


def _described(action: Any) -> dict[str, Any]:
    return {
        "action": action.name,
        "parameters": action.signature.describe(),
        "runs": action.runs.value,
        "timeout_s": action.policy.timeout_s,
        "retry": action.policy.retries,
    }


def _shown(value: object) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


async def _add_depths(app: Canoa, rows: list[dict[str, Any]]) -> None:
    broker = app.new_broker("actions")
    await broker.open()
    try:
        for row in rows:
            row["waiting"], row["workers"] = await _depth(broker, topology.action_queue_name(row["action"]))
    finally:
        await broker.aclose()


async def _depth(broker: Broker, queue: str) -> tuple[int | None, int | None]:
    try:
        depth = await broker.depth(queue)
    except QueueMissing:
        return None, None
    return depth.messages, depth.consumers


async def _declare(app: Canoa) -> None:
    broker = app.new_broker("actions")
    await broker.open()
    try:
        await broker.declare(*topology.shared())
        for action in app.actions.values():
            queues = topology.of_action(action.name, quorum=action.quorum, max_priority=action.priorities)
            await broker.declare(*queues)
    finally:
        await broker.aclose()
