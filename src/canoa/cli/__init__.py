"""The `canoa` command: one file per command here, and the only place that wires parts together."""

from __future__ import annotations

from typing import Annotated

import typer

from canoa.cli.actions import actions_app
from canoa.cli.call import call
from canoa.cli.config import config_app
from canoa.cli.dead import dead_app
from canoa.cli.doctor import doctor
from canoa.cli.init import init
from canoa.cli.map import map_
from canoa.cli.recorder import recorder
from canoa.cli.result import cancel, result
from canoa.cli.site import site_app
from canoa.cli.submit import submit
from canoa.cli.tasks import tasks
from canoa.cli.up import up
from canoa.cli.worker import worker

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


app.command()(init)
app.command()(up)
app.command()(worker)
app.command()(recorder)
app.command()(call)
app.command("map")(map_)
app.command()(submit)
app.command()(result)
app.command()(cancel)
app.command()(tasks)
app.add_typer(dead_app, name="dead")
app.command()(doctor)
app.add_typer(actions_app, name="actions")
app.add_typer(site_app, name="site")
app.add_typer(config_app, name="config")


def main() -> None:
    app()
