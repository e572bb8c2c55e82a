"""`canoa plans`: what is registered under a name, and registering a plan file."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from canoa.cli import output
from canoa.cli.loading import load_app
from canoa.cli.nodes import AsJson
from canoa.cli.opening import open_door
from canoa.cli.options import BrokerUrl
from canoa.errors import SettingError

if TYPE_CHECKING:
    from canoa.execution.plan import Plan

SHOWN = 8

plans_app = typer.Typer(no_args_is_help=True, help="Plans that are registered under a name.")

PlanSource = Annotated[
    str,
    typer.Argument(
        help="A plan in YAML or JSON; - stdin; or module:app for all plans of an app.",
        metavar="FILE|APP",
        show_default=False,
    ),
]


@plans_app.command("list")
def list_(broker: BrokerUrl = None, as_json: AsJson = False) -> None:
    """The plans that are registered."""
    with output.errors_explained(as_json=as_json):
        with closing(open_door(broker)) as door:
            found = door.plans()
        if as_json:
            output.data(found)
        elif found:
            rows = [[each.name, str(len(each.document["steps"])), ", ".join(each.actions)] for each in found]
            output.table(["plan", "steps", "actions"], rows, free="actions")
        else:
            output.say("no plan is registered; `canoa plans register plan.yaml` does that")


@plans_app.command()
def show(
    name: Annotated[str, typer.Argument(help="Its name, or its URN.", metavar="PLAN", show_default=False)],
    broker: BrokerUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it on one line.")] = False,
) -> None:
    """One plan, as a plan file in JSON: `canoa plans register` takes it again."""
    with output.errors_explained(as_json=as_json):
        with closing(open_door(broker)) as door:
            found = door.plan(name)
        if as_json:
            output.data(found.document)
        else:
            output.line(json.dumps(found.document, indent=2, ensure_ascii=False))


@plans_app.command()
def register(source: PlanSource, broker: BrokerUrl = None, as_json: AsJson = False) -> None:
    """Register plans under their names, in place of those that had them. Tasks that run keep their plan."""
    from canoa.execution.plan_writing import document

    with output.errors_explained(as_json=as_json):
        plans = _plans_of_app(source) if _names_app(source) else [read_plan(source)]
        with closing(open_door(broker)) as door:
            done = [door.register(plan.name, document(plan)) for plan in plans]
        if as_json:
            output.data(done if _names_app(source) else done[0])
            return
        for each in done:
            output.line(each.name)
            output.say("registered" if each.is_new else "it was registered before, exactly so")
            if each.unoffered:
                output.say(_unoffered(each.unoffered))


def _unoffered(actions: list[str]) -> str:
    named = [*actions[:SHOWN], *(["…"] if len(actions) > SHOWN else [])]
    return f"no node has ever offered {', '.join(named)}: its tasks are refused until one does; look at `canoa nodes`"


def _names_app(source: str) -> bool:
    return ":" in source and not Path(source).exists()


def _plans_of_app(target: str) -> list[Plan]:
    app = load_app(target)
    if not app.plans:
        raise SettingError(f'app {app.name!r} has no plans; make one: plan = {app.name}.plan("…")')
    return [plan.build() for plan in app.plans.values()]


def read_plan(path: str) -> Plan:
    """Checked: `PlanRefused` names the file, the step and the remedy."""
    from canoa.execution.plan_files import MAX_TEXT_BYTES, plan_from_text

    try:
        if path == "-":
            return plan_from_text(sys.stdin.read(MAX_TEXT_BYTES + 1), source="stdin")
        with Path(path).open(encoding="utf-8") as source:
            return plan_from_text(source.read(MAX_TEXT_BYTES + 1), source=path)
    except OSError as exc:
        raise SettingError(f"cannot read {path}: {exc.strerror}; name a plan file, such as plan.yaml") from exc
    except UnicodeDecodeError as exc:
        raise SettingError(f"{path} is not UTF-8: {exc}") from exc
