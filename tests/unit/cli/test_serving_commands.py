"""Which commands hear a stop from their first moment on."""

from __future__ import annotations

from canoa.cli import SERVING
from canoa.cli.program import COMMANDS, RUNNING


def test_every_command_that_runs_an_app_hears_a_stop_from_its_first_moment() -> None:
    assert {each.name for each in COMMANDS if each.panel == RUNNING} == SERVING
