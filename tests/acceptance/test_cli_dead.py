"""`canoa dead`: what ended badly is found, looked at, and sent again once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.acceptance.shell import Shell, until

if TYPE_CHECKING:
    from pathlib import Path


def died(shell: Shell, folder: Path) -> str:
    """The id of a task that ended badly."""
    run = shell.canoa("submit", "depot.fragile", json.dumps({"folder": str(folder)}))
    task_id = run.stdout.strip()
    assert shell.canoa("result", task_id, "--wait", "20").returncode == 1
    until(lambda: task_id in waiting(shell))
    return task_id


def waiting(shell: Shell) -> list[str]:
    listed = shell.canoa("dead", "list", "--action", "depot.fragile", "--limit", "1000", "--json")
    return [each["task_id"] for each in json.loads(listed.stdout)]


def test_a_dead_letter_says_what_happened(keeping: Shell, tmp_path: Path) -> None:
    task_id = died(keeping, tmp_path)

    listed = keeping.canoa("dead", "list", "--limit", "1")
    shown = keeping.canoa("dead", "show", task_id)

    (row,) = [line for line in listed.stdout.splitlines() if task_id in line]
    assert "depot.fragile" in row
    assert "ValueError: no glue" in row
    assert "Traceback (most recent call last)" in shown.stdout
    assert json.loads(keeping.canoa("dead", "show", task_id, "--json").stdout)["reason"] == "failed"


def test_a_redriven_task_runs_again_and_its_letter_is_gone(keeping: Shell, tmp_path: Path) -> None:
    task_id = died(keeping, tmp_path)
    (tmp_path / "mended").touch()

    redriven = keeping.canoa("dead", "redrive", task_id)

    assert (redriven.returncode, redriven.stdout) == (0, f"{task_id}\n")
    assert keeping.canoa("result", task_id, "--wait", "20").stdout == '"whole"\n'
    assert task_id not in waiting(keeping)


def test_nothing_is_redriven_twice(keeping: Shell, tmp_path: Path) -> None:
    task_id = died(keeping, tmp_path)
    (tmp_path / "mended").touch()
    keeping.canoa("dead", "redrive", task_id)

    again = keeping.canoa("dead", "redrive", task_id, "nonsense", "--json")

    assert again.returncode == 1
    assert json.loads(again.stdout) == {"redriven": [], "skipped": [task_id, "nonsense"]}


def test_a_dry_run_changes_nothing(keeping: Shell, tmp_path: Path) -> None:
    task_id = died(keeping, tmp_path)

    tried = keeping.canoa("dead", "redrive", task_id, "nonsense", "--dry-run", "--json")
    tried_all = keeping.canoa("dead", "redrive", "--all", "--dry-run")

    assert json.loads(tried.stdout) == {"redriven": [task_id], "skipped": ["nonsense"]}
    assert task_id in tried_all.stdout.split()
    assert task_id in waiting(keeping)


def test_all_of_an_action_are_redriven_at_once(keeping: Shell, tmp_path: Path) -> None:
    ids = {died(keeping, tmp_path) for _ in range(2)}
    (tmp_path / "mended").touch()

    redriven = keeping.canoa("dead", "redrive", "--action", "depot.fragile")

    assert redriven.returncode == 0
    assert ids <= set(redriven.stdout.split())
    for task_id in ids:
        assert keeping.canoa("result", task_id, "--follow").stdout == '"whole"\n'


def test_none_that_wait_is_said_and_no_error(keeping: Shell) -> None:
    listed = keeping.canoa("dead", "list", "--action", "depot.echo")

    assert (listed.returncode, listed.stdout, listed.stderr) == (0, "", "no dead letters wait\n")
    assert keeping.canoa("tasks", "--action", "depot.nowhere").stderr == "no tasks are kept that fit\n"
    assert keeping.canoa("tasks", "--action", "depot.nowhere", "--json").stdout == "[]\n"


def test_which_ones_must_be_said(keeping: Shell) -> None:
    for args in ([], ["--all", "--action", "depot.fragile"], ["an-id", "--all"]):
        run = keeping.canoa("dead", "redrive", *args)

        assert (run.returncode, run.stdout) == (2, "")
        assert "say which" in run.stderr
