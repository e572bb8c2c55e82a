"""Which tasks `canoa tasks` is asked for: what a task is shown as can be asked for, or the error says how."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from canoa.cli.program import program


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ["--state", "refused"],
            "--state 'refused' is no state; it is how a task ended: --outcome refused; "
            "states are waiting, running, ended",
        ),
        (["--state", "gone"], "--state 'gone' is no state; states are waiting, running, ended"),
        (
            ["--outcome", "waiting"],
            "--outcome 'waiting' is no outcome; it is where a task stands: --state waiting; "
            "outcomes are ok, failed, timed_out, cancelled, expired, refused, poisoned",
        ),
    ],
)
def test_how_a_task_ended_is_told_apart_from_where_it_stands(args: list[str], said: str) -> None:
    told = CliRunner().invoke(program(["tasks"]), ["tasks", *args])

    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr == f"error: {said}\n"
