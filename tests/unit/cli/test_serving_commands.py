"""Which commands hear a stop from their first moment on."""

from __future__ import annotations

from canoa.cli import SERVING
from canoa.cli.program import RUNNING, app


def test_every_command_that_runs_an_app_hears_a_stop_from_its_first_moment() -> None:
    running = {
        each.name or each.callback.__name__
        for each in app.registered_commands
        if each.rich_help_panel == RUNNING and each.callback is not None
    }

    assert running == SERVING
