"""All commands of `canoa`, in the parts into which its help sorts them."""

from __future__ import annotations

from typing import Annotated

import typer

from canoa.cli.actions import actions_app
from canoa.cli.call import call
from canoa.cli.config import config_app
from canoa.cli.dead import dead_app
from canoa.cli.doctor import doctor
from canoa.cli.explain import explain
from canoa.cli.init import init
from canoa.cli.manager import manager
from canoa.cli.map import map_
from canoa.cli.nodes import nodes
from canoa.cli.outbox import outbox
from canoa.cli.plans import plans_app
from canoa.cli.recorder import recorder
from canoa.cli.result import cancel, result
from canoa.cli.site import site_app
from canoa.cli.submit import submit
from canoa.cli.task import task_app
from canoa.cli.tasks import tasks
from canoa.cli.token import token_app
from canoa.cli.up import up
from canoa.cli.worker import worker

RUNNING = "Run an app"
TASKS = "Call actions, follow tasks"
PROJECT = "Set up, look around"

app = typer.Typer(
    name="canoa",
    help="Runs Python functions where they belong, from edge to cloud.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("canoa"))
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Runs Python functions where they belong, from edge to cloud."""


app.command(rich_help_panel=PROJECT)(init)
app.command(rich_help_panel=RUNNING)(up)
app.command(rich_help_panel=RUNNING)(worker)
app.command(rich_help_panel=RUNNING)(manager)
app.command(rich_help_panel=RUNNING)(recorder)
app.command(rich_help_panel=TASKS)(call)
app.command("map", rich_help_panel=TASKS)(map_)
app.command(rich_help_panel=TASKS)(submit)
app.command(rich_help_panel=TASKS)(result)
app.command(rich_help_panel=TASKS)(cancel)
app.command(rich_help_panel=TASKS)(tasks)
app.add_typer(task_app, name="task", rich_help_panel=TASKS)
app.add_typer(plans_app, name="plans", rich_help_panel=TASKS)
app.add_typer(dead_app, name="dead", rich_help_panel=TASKS)
app.command(rich_help_panel=PROJECT)(nodes)
app.command(rich_help_panel=PROJECT)(explain)
app.command(rich_help_panel=PROJECT)(outbox)
app.command(rich_help_panel=PROJECT)(doctor)
app.add_typer(actions_app, name="actions", rich_help_panel=PROJECT)
app.add_typer(token_app, name="token", rich_help_panel=PROJECT)
app.add_typer(site_app, name="site", rich_help_panel=PROJECT)
app.add_typer(config_app, name="config", rich_help_panel=PROJECT)
