"""`canoa explain`: where a call of an action, or a step of a plan, would go now, and why there."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from canoa import settings
from canoa.cli import output
from canoa.cli.nodes import AsJson
from canoa.cli.opening import open_door
from canoa.cli.options import BrokerUrl
from canoa.cli.routed_orders import is_plan, is_plan_file
from canoa.cli.story import clean
from canoa.errors import SettingError

if TYPE_CHECKING:
    from canoa.recorder.routed_views import ConsideredView, ExplainView

Named = Annotated[
    str,
    typer.Argument(
        help="An action (app.name, or its URN), or with --step a registered plan.",
        metavar="ACTION|PLAN",
        show_default=False,
    ),
]
StepName = Annotated[
    str,
    typer.Option("--step", help="Of a plan: this step; charge.compensation is what undoes charge.", metavar="NAME"),
]
SizeBytes = Annotated[int, typer.Option("--size", min=0, help="Bytes of the input that it would get.", metavar="BYTES")]

FromSite = Annotated[
    str | None,
    typer.Option("--site", help="Where its input would come from. Otherwise CANOA_SITE.", show_default=False),
]

COLUMNS = ["node", "layer", "site", "score", "why"]


def explain(
    name: Named,
    step: StepName = "",
    size_bytes: SizeBytes = 0,
    site: FromSite = None,
    broker: BrokerUrl = None,
    as_json: AsJson = False,
) -> None:
    """Say where a routed call of an action, or a step of a plan, would go now, and why: every node that offers it, its
    score, and what rules it out. Nothing is sent. Of attempts that were sent, `canoa task show` says the same."""
    with output.errors_explained(as_json=as_json):
        _check(name, step)
        site = settings.read({}).site if site is None else site
        with closing(open_door(broker)) as door:
            found = (
                door.explain_step(name, step, size_bytes=size_bytes, site=site)
                if step
                else door.explain(name, size_bytes=size_bytes, site=site)
            )
        if as_json:
            output.data(found)
            return
        output.say(_said(found))
        output.table(COLUMNS, [_row(each) for each in found.considered], free="why")


def _check(name: str, step: str) -> None:
    if is_plan_file(name):
        raise SettingError(
            f"{name!r:.80} is a plan file; register it first (canoa plans register {name:.80}), "
            f"then ask by the plan's name: canoa explain NAME --step STEP"
        )
    if is_plan(name) and not step:
        raise SettingError(
            f"{name!r:.80} is a plan's name, or an action's without its app; say which step: --step NAME "
            f"(canoa plans show {name:.80}), or name the action, <app>.<action>"
        )
    if step and not is_plan(name):
        raise SettingError(f"{name!r:.80} is an action, which has no steps; name a plan, or leave --step out")


def _said(found: ExplainView) -> str:
    what = found.action if found.step is None else f"step {found.step} of {found.plan}, {found.action},"
    note = f"\n{found.note[0].upper()}{found.note[1:]}." if found.note else ""
    if found.node_id is None:
        return f"{what} would wait: no node can take it now.{note}"
    by = found.routing.replace("_", " ")
    able = sum(not each.ruled_out for each in found.considered)
    return f"{what} would go to {clean(found.node_id)}, by {by} over {able} node{'s' if able > 1 else ''}.{note}"


def _row(each: ConsideredView) -> list[str]:
    score = "-" if each.score is None else f"{each.score:.1f}"
    return [clean(each.node_id), each.layer, clean(each.site) or "-", score, clean(each.ruled_out or each.why)]
