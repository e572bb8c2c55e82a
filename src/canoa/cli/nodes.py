"""`canoa nodes`: who runs the steps of routed tasks, and how they are."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from canoa.cli import output
from canoa.cli.opening import open_door
from canoa.cli.options import BrokerUrl
from canoa.cli.story import clean
from canoa.cli.times import ago, shown_time

if TYPE_CHECKING:
    from canoa.recorder.routed_views import NodeView

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

COLUMNS = ["node", "layer", "site", "health", "queued", "actions"]
"""What fits into 80 columns, with names of usual lengths: those are never cut. Where all fit, all are shown."""

WIDE = ["node", "layer", "site", "protocol", "proof", "health", "last seen", "load", "queued", "out / in", "actions"]


def nodes(
    node_id: Annotated[str | None, typer.Argument(help="Only this one, in full.", metavar="ID")] = None,
    broker: BrokerUrl = None,
    wide: Annotated[
        bool, typer.Option("--wide", help="Every column, also where the terminal is too narrow for them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show every node that the managers know: where it stands, how it is, what is queued for it, what it offers."""
    with output.errors_explained(as_json=as_json):
        with closing(open_door(broker)) as door:
            found = door.nodes() if node_id is None else [door.node(node_id)]
        if as_json:
            output.data(found if node_id is None else found[0])
        elif node_id is not None:
            output.table(["what", "is"], _facts(found[0]), free="is")
        elif found:
            show_all(found, is_wide=wide)
        else:
            output.say("no node has registered; start one: canoa worker module:app --layer edge --site natal")


def show_all(found: list[NodeView], *, is_wide: bool) -> None:
    """All columns, where they are asked for or there is room for them."""
    now = datetime.now(UTC)
    names = [len(name) + 1 for each in found for name in each.actions]
    longest = min(max(names, default=0), output.NARROWEST)
    columns, rows = WIDE, [wide_row(each, now) for each in found]
    if not is_wide and not output.has_room(columns, rows, free="actions", narrowest=longest):
        columns, rows = COLUMNS, [row(each) for each in found]
    output.table(columns, rows, free="actions", narrowest=longest)


def row(node: NodeView) -> list[str]:
    """What is ill is said where it is: of the node, or of one of its actions."""
    ill = node.action_health
    actions = [f"{name} ({ill[name]})" if name in ill else name for name in node.actions]
    return [
        clean(node.id),
        node.layer,
        clean(node.site) or "-",
        node.health if node.state == "here" else node.state.replace("_", " "),
        str(node.queued),
        clean(", ".join(actions)) or "-",
    ]


def wide_row(node: NodeView, now: datetime) -> list[str]:
    return [
        clean(node.id),
        node.layer,
        clean(node.site) or "-",
        shown_ways(node),
        "-" if node.state == "left" else node.proof.replace("_", " "),
        shown_health(node),
        ago((now - node.seen_at).total_seconds()),
        "-" if node.load is None else f"{round(100 * node.load)} %",
        str(node.queued),
        f"{shown_bytes(node.sent_bytes)} / {shown_bytes(node.received_bytes)}",
        clean(", ".join(node.actions)) or "-",
    ]


def shown_ways(node: NodeView) -> str:
    """All of them; of several, the one in use. Why its endpoint is not called, `canoa nodes ID` says."""
    in_use = [node.way] if "+" in node.protocol and node.way else []
    notes = ", ".join([*in_use, *(["HTTP refused"] if node.endpoint_refused else [])])
    return f"{node.protocol} ({notes})".lstrip() if notes else node.protocol


def shown_health(node: NodeView) -> str:
    """What matters most: whether it is there at all, then the node, then the worst of its actions."""
    if node.state not in ("here", node.proof):
        return node.state
    ill = [f"{action} {state}" for action, state in node.action_health.items()]
    return node.health if not ill else f"{node.health} ({', '.join(ill)})"


def shown_bytes(size: int) -> str:
    """In two or three digits."""
    shown = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if shown < 999.5:
            return f"{shown:.1f} {unit}" if shown < 9.95 and unit != "B" else f"{shown:.0f} {unit}"
        shown /= 1000
    return f"{shown:,.0f} TB"


def _facts(node: NodeView) -> list[list[str]]:
    facts = {name: value for name, value in vars(node).items() if value not in (None, "", {}, [])}
    return [[name, _shown(value)] for name, value in facts.items()]


def _shown(value: object) -> str:
    match value:
        case datetime():
            return shown_time(value)
        case list():
            return clean(", ".join(map(str, value)))
        case dict():
            return clean(", ".join(f"{name} {state}" for name, state in value.items()))
        case _:
            return clean(str(value))
