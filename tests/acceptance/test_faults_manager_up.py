"""`canoa up` and its manager: a plan that runs when it is killed goes on at the next start, where it was."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.acceptance.kept_depot import TOKEN
from tests.acceptance.shell import CANOA, DEPOT, ROOT, Process, Shell, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLAN = """
plan: two-steps
steps:
  first: {action: depot.echo, with: {text: $input.text}}
  second: {action: depot.hold, with: {folder: $input.folder}, after: [first]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Shell]:
    """A shell in an empty folder."""
    shell = Shell(tmp_path, folder=tmp_path / "project")
    shell.folder.mkdir()
    shell.env |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "CANOA_API_TOKEN": TOKEN}
    (shell.folder / "plan.yaml").write_text(PLAN)
    yield shell
    shell.close()


def start_up(shell: Shell) -> Process:
    process = shell.start(str(CANOA), "up", DEPOT, "--port", "0", "--log-level", "info", "--json")
    process.wait_logged("Ctrl-C")
    return process


def test_a_plan_of_a_killed_up_goes_on_with_the_step_that_was_out(folder: Shell, tmp_path: Path) -> None:
    killed = start_up(folder)
    given = json.dumps({"text": "hello", "folder": str(tmp_path)})
    submitted = folder.canoa("submit", "plan.yaml", given, "--json")
    task_id = json.loads(submitted.stdout)["id"]
    until((tmp_path / "started").exists)
    killed.kill()

    up = start_up(folder)
    (tmp_path / "release").touch()

    assert folder.canoa("result", task_id, "--wait", "20").stdout == '"held"\n'
    steps = _steps(folder, task_id)
    assert [attempt["outcome"] for attempt in steps["first"]["attempts"]] == ["ok"]
    assert [attempt["outcome"] for attempt in steps["second"]["attempts"]] == ["returned", "ok"]
    assert any(event.get("event") == "steps_sent_anew" and event["steps"] == 1 for event in up.events())


def _steps(folder: Shell, task_id: str) -> dict[str, Any]:
    shown = folder.canoa("task", "show", task_id, "--json")
    return {step["name"]: step for step in json.loads(shown.stdout)["steps"]}
