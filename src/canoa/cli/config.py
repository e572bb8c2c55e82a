"""`canoa config`: the settings in force here, where each came from, and whether they can work."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from canoa.cli import output
from canoa.settings import Sourced, Survey, survey

config_app = typer.Typer(no_args_is_help=True, help="The settings in force here, and where each came from.")
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@config_app.command()
def view(as_json: AsJson = False) -> None:
    """Every setting, its value and where that came from; secrets hidden."""
    found = survey({})
    settings = list(found.sourced.values())
    if as_json:
        output.data([_described(each) for each in settings])
    else:
        output.table(
            ["setting", "value", "from"], [[each.name, _written(each.shown), _origin(each)] for each in settings]
        )
    _leave_with(found)


@config_app.command()
def validate(as_json: AsJson = False) -> None:
    """Every problem at once, with its remedy. Exit code 0: valid, 1: not."""
    from canoa.cli import findings
    from canoa.doctor import configuration

    found = configuration.look(survey({}), os.environ)
    findings.show(found, as_json=as_json)
    raise typer.Exit(findings.exit_code(found))


def _described(sourced: Sourced) -> dict[str, object]:
    return {"name": sourced.name, "value": sourced.shown, "source": sourced.source, "key": sourced.key}


def _origin(sourced: Sourced) -> str:
    return sourced.source if sourced.key == sourced.name else f"{sourced.source} ({sourced.key})"


def _written(value: object) -> str:
    """As it would stand in `.env`."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _leave_with(found: Survey) -> None:
    for text in found.problems:
        output.say(f"{output.paint('error:', '31')} {text}")
    if found.problems:
        raise typer.Exit(output.WENT_WRONG)
