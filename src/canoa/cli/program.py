"""All commands of `canoa`, in the parts into which its help sorts them.

A command's module is imported when it is asked for: all of them take as long again as the one that runs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

RUNNING: Final = "Run an app"
TASKS: Final = "Call actions, follow tasks"
PROJECT: Final = "Set up, look around"


class Command(NamedTuple):
    """`function`: in the module, or a `typer.Typer` there, which has commands of its own."""

    name: str
    panel: str
    module: str
    function: str


COMMANDS: Final = (
    Command("init", PROJECT, "canoa.cli.init", "init"),
    Command("up", RUNNING, "canoa.cli.up", "up"),
    Command("worker", RUNNING, "canoa.cli.worker", "worker"),
    Command("manager", RUNNING, "canoa.cli.manager", "manager"),
    Command("recorder", RUNNING, "canoa.cli.recorder", "recorder"),
    Command("call", TASKS, "canoa.cli.call", "call"),
    Command("map", TASKS, "canoa.cli.map", "map_"),
    Command("submit", TASKS, "canoa.cli.submit", "submit"),
    Command("result", TASKS, "canoa.cli.result", "result"),
    Command("cancel", TASKS, "canoa.cli.result", "cancel"),
    Command("tasks", TASKS, "canoa.cli.tasks", "tasks"),
    Command("task", TASKS, "canoa.cli.task", "task_app"),
    Command("plans", TASKS, "canoa.cli.plans", "plans_app"),
    Command("dead", TASKS, "canoa.cli.dead", "dead_app"),
    Command("nodes", PROJECT, "canoa.cli.nodes", "nodes"),
    Command("explain", PROJECT, "canoa.cli.explain", "explain"),
    Command("outbox", PROJECT, "canoa.cli.outbox", "outbox"),
    Command("doctor", PROJECT, "canoa.cli.doctor", "doctor"),
    Command("actions", PROJECT, "canoa.cli.actions", "actions_app"),
    Command("token", PROJECT, "canoa.cli.token", "token_app"),
    Command("site", PROJECT, "canoa.cli.site", "site_app"),
    Command("config", PROJECT, "canoa.cli.config", "config_app"),
)


def program(words: Sequence[str]) -> typer.Typer:
    """For this command line: the command that it begins with; all of them for whoever asks for help, or mistypes."""
    app = typer.Typer(
        name="canoa",
        help="Runs Python functions where they belong, from edge to cloud.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    asked_for = [each for each in COMMANDS if [each.name] == [*words[:1]]]
    for command in asked_for or COMMANDS:
        _add(app, command)
    return app


def _add(app: typer.Typer, command: Command) -> None:
    found = getattr(import_module(command.module), command.function)
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=command.name, rich_help_panel=command.panel)
    else:
        app.command(command.name, rich_help_panel=command.panel)(found)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("canoa"))
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Runs Python functions where they belong, from edge to cloud."""
