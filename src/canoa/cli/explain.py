"""`canoa explain ACTION`: where a call would go now, and why there."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from canoa.cli import output
from canoa.cli.nodes import AsJson
from canoa.cli.opening import open_door
from canoa.cli.orders import ActionArgument
from canoa.cli.story import clean
from canoa.cli.worker import BrokerUrl

if TYPE_CHECKING:
    from canoa.recorder.routed_views import ConsideredView, ExplainView

SizeBytes = Annotated[int, typer.Option("--size", min=0, help="Bytes of the input that it would get.", metavar="BYTES")]

COLUMNS = ["node", "layer", "site", "score", "why"]


def explain(
    action: ActionArgument, size_bytes: SizeBytes = 0, broker: BrokerUrl = None, as_json: AsJson = False
) -> None:
    """Say where a routed call of an action would go now, and why: every node that offers it, its score, and what rules
    it out. Nothing is sent. Of attempts that were sent, `canoa task show` says the same."""
    with output.errors_explained(as_json=as_json):
        with closing(open_door(broker)) as door:
            found = door.explain(action, size_bytes=size_bytes)
        if as_json:
            output.data(found)
            return
        output.say(_said(found))
        output.table(COLUMNS, [_row(each) for each in found.considered], free="why")


def _said(found: ExplainView) -> str:
    by = found.routing.replace("_", " ")
    if found.node_id is None:
        return f"{found.action} would wait: no node can take it now."
    able = sum(not each.ruled_out for each in found.considered)
    return f"{found.action} would go to {clean(found.node_id)}, by {by} over {able} node{'s' if able > 1 else ''}."


def _row(each: ConsideredView) -> list[str]:
    score = "-" if each.score is None else f"{each.score:.1f}"
    return [clean(each.node_id), each.layer, clean(each.site) or "-", score, clean(each.ruled_out or each.why)]
