"""`canoa submit`, `result`, `cancel` and `tasks`: the same words and ends through the API and through the broker."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.acceptance.shell import CANOA, Shell, until

if TYPE_CHECKING:
    from pathlib import Path

HELLO = '{"text": "hello"}'


def submitted(shell: Shell, *args: str) -> str:
    """The id of a new task."""
    run = shell.canoa("submit", *args)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout.strip()


def in_folder(folder: Path) -> str:
    return json.dumps({"folder": str(folder)})


def task(shell: Shell, task_id: str) -> dict[str, Any]:
    return dict(json.loads(shell.canoa("tasks", task_id, "--json").stdout))


# --- Results ------------------------------------------------------------------------------------------


def test_a_submitted_task_has_an_id_by_which_its_result_is_found(keeping: Shell) -> None:
    task_id = submitted(keeping, "depot.echo", HELLO)

    found = keeping.canoa("result", task_id, "--wait", "20")

    assert (found.returncode, found.stdout, found.stderr) == (0, '"hello"\n', "")
    again = json.loads(keeping.canoa("result", task_id, "--json").stdout)
    assert (again["result"], again["task"]["outcome"]) == ("hello", "ok")


def test_a_submit_may_wait_for_the_result(keeping: Shell) -> None:
    plain = keeping.canoa("submit", "depot.echo", HELLO, "--wait", "20")
    told = keeping.canoa("submit", "depot.echo", HELLO, "--follow", "--json")

    assert (plain.returncode, plain.stdout) == (0, '"hello"\n')
    assert json.loads(told.stdout).items() >= {"action": "depot.echo", "is_new": True, "result": "hello"}.items()


def test_a_task_that_failed_is_exit_1_with_its_words(keeping: Shell) -> None:
    task_id = submitted(keeping, "depot.fail", '{"reason": "no stock"}')

    found = keeping.canoa("result", task_id, "--wait", "20")
    told = keeping.canoa("result", task_id, "--json")

    assert (found.returncode, found.stdout, found.stderr) == (1, "", "error: ValueError: no stock\n")
    assert told.returncode == 1
    assert json.loads(told.stdout)["error_type"] == "ValueError"


def test_a_result_that_is_not_there_yet_is_exit_1_and_says_how_far_the_task_is(keeping: Shell, tmp_path: Path) -> None:
    task_id = submitted(keeping, "depot.paint", in_folder(tmp_path))
    until(lambda: task(keeping, task_id)["progress"] == 0.4)

    found = keeping.canoa("result", task_id)
    waited = keeping.canoa("result", task_id, "--wait", "0.2")

    for run in (found, waited):
        assert (run.returncode, run.stdout) == (1, "")
        assert f"task {task_id} (depot.paint) is running, 40 % (first coat)" in run.stderr
    (tmp_path / "release").touch()
    assert keeping.canoa("result", task_id, "--follow").stdout == '"held"\n'


@pytest.mark.parametrize("command", [["result"], ["cancel"], ["tasks"], ["dead", "show"]])
def test_a_task_that_nobody_knows_is_wrong_use(keeping: Shell, command: list[str]) -> None:
    run = keeping.canoa(*command, "nonsense")

    assert (run.returncode, run.stdout) == (2, "")
    assert "'nonsense'" in run.stderr


# --- Leaving early ------------------------------------------------------------------------------------


def test_ctrl_c_leaves_the_task_alone_and_says_how_to_come_back(keeping: Shell, tmp_path: Path) -> None:
    waiting = keeping.start(str(CANOA), "submit", "depot.hold", in_folder(tmp_path), "--follow")
    waiting.wait_logged("waiting for depot.hold")

    waiting.send(signal.SIGINT)

    assert (waiting.wait(), waiting.output()) == (130, "")
    task_id = waiting.said.split()[1]
    assert f"canoa result {task_id} --follow" in waiting.said
    assert "Traceback" not in waiting.said
    (tmp_path / "release").touch()
    assert keeping.canoa("result", task_id, "--follow").stdout == '"held"\n'


def test_ctrl_c_cancels_the_task_where_that_was_asked_for(keeping: Shell, tmp_path: Path) -> None:
    command = ["submit", "depot.hold", in_folder(tmp_path), "--follow", "--cancel-on-interrupt"]
    waiting = keeping.start(str(CANOA), *command)
    waiting.wait_logged("waiting for depot.hold")

    waiting.send(signal.SIGINT)

    assert waiting.wait() == 130
    assert "it was cancelled" in waiting.said
    assert task(keeping, waiting.said.split()[1])["outcome"] == "cancelled"


def test_a_wait_that_is_over_says_how_to_come_back(keeping: Shell, tmp_path: Path) -> None:
    run = keeping.canoa("submit", "depot.hold", in_folder(tmp_path), "--wait", "0.3")

    assert (run.returncode, run.stdout) == (1, "")
    assert "no result after 0.3 s; it goes on" in run.stderr
    (tmp_path / "release").touch()


# --- Cancelling ---------------------------------------------------------------------------------------


def test_a_cancelled_task_ends_as_cancelled(keeping: Shell, tmp_path: Path) -> None:
    task_id = submitted(keeping, "depot.hold", in_folder(tmp_path))
    until((tmp_path / "started").exists)

    cancelled = keeping.canoa("cancel", task_id)

    assert (cancelled.returncode, cancelled.stdout) == (0, "")
    assert "has ended: cancelled" in cancelled.stderr
    assert keeping.canoa("result", task_id).returncode == 1


def test_a_task_that_has_ended_cannot_be_cancelled(keeping: Shell) -> None:
    task_id = submitted(keeping, "depot.echo", HELLO)
    keeping.canoa("result", task_id, "--follow")

    cancelled = keeping.canoa("cancel", task_id, "--json")

    assert cancelled.returncode == 1
    assert "has ended: ok" in cancelled.stderr
    assert json.loads(cancelled.stdout)["outcome"] == "ok"


# --- Submitting ---------------------------------------------------------------------------------------


def test_the_same_key_is_the_same_task(keeping: Shell) -> None:
    first = submitted(keeping, "depot.echo", HELLO, "--key", "order 7")
    again = json.loads(keeping.canoa("submit", "depot.echo", HELLO, "--key", "order 7", "--json").stdout)

    assert again == {"id": first, "action": "depot.echo", "is_new": False}


def test_a_task_for_later_does_not_start_before(keeping: Shell, tmp_path: Path) -> None:
    asked_s = time.time()
    task_id = submitted(keeping, "depot.late", in_folder(tmp_path), "--after", "2")
    assert task(keeping, task_id)["state"] == "waiting"

    ran_s = float(keeping.canoa("result", task_id, "--follow").stdout)

    assert ran_s >= asked_s + 2


def test_many_are_submitted_from_lines_and_each_has_an_id(keeping: Shell, tmp_path: Path) -> None:
    lines = "".join(f'{{"text": "line {number}"}}\n\n' for number in range(700))
    (tmp_path / "texts.jsonl").write_text(lines)

    run = keeping.canoa("submit", "depot.echo", "--lines", str(tmp_path / "texts.jsonl"))
    piped = keeping.canoa("submit", "depot.echo", "--lines", "-", "--json", stdin=HELLO)

    ids = run.stdout.split()
    assert (run.returncode, len(set(ids)), run.stderr) == (0, 700, "submitted 700 tasks\n")
    assert keeping.canoa("result", ids[699], "--follow").stdout == '"line 699"\n'
    assert json.loads(piped.stdout)["is_new"] is True


def test_a_line_that_is_no_json_is_named(keeping: Shell) -> None:
    run = keeping.canoa("submit", "depot.echo", "--lines", "-", stdin=f"{HELLO}\n[1]\n")

    assert (run.returncode, run.stdout) == (2, "")
    assert "submitted 0 tasks" in run.stderr
    assert "line 2: the arguments must be a JSON object" in run.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["echo", HELLO], "is not an action's name"),
        (["depot.echo", "{text"], "not JSON"),
        (["depot.echo", HELLO, "--at", "tomorrow"], "--at 'tomorrow' is no time"),
        (["depot.echo", "--lines", "nowhere.jsonl"], "cannot read nowhere.jsonl"),
        (["depot.echo", "--lines", "-", "--key", "k"], "--lines goes without"),
    ],
)
def test_wrong_use_is_exit_2_and_names_value_or_remedy(keeping: Shell, args: list[str], says: str) -> None:
    run = keeping.canoa("submit", *args)

    assert (run.returncode, run.stdout) == (2, "")
    assert says in run.stderr
    assert "Traceback" not in run.stderr


def test_an_action_that_was_mistyped_is_guessed(keeping: Shell) -> None:
    submitted(keeping, "depot.echo", HELLO)

    for command in (["submit"], ["call"]):
        run = keeping.canoa(*command, "depot.ecko", HELLO)

        assert (run.returncode, run.stdout) == (2, "")
        assert run.stderr == "error: nobody offers action 'depot.ecko' here; did you mean depot.echo?\n"


def test_actions_are_listed_by_whoever_offers_them(keeping: Shell) -> None:
    listed = keeping.canoa("actions", "--json")

    if "CANOA_BROKER" in keeping.env:  # a recorder serves any app
        assert (listed.returncode, listed.stdout) == (2, "")
        assert "canoa actions shop:app" in listed.stderr
    else:
        (echo,) = [each for each in json.loads(listed.stdout) if each["action"] == "depot.echo"]
        assert (echo["parameters"], echo["workers"]) == ("(text: str, *, times: int = 1)", 1)
        assert "depot.paint" in keeping.canoa("actions").stdout


def printed_on_a_terminal(shell: Shell, *args: str, columns: int) -> str:
    """What a person reads on stdout."""
    ours, theirs = pty.openpty()
    env = {**shell.env, "COLUMNS": str(columns), "TERM": "xterm"}
    try:
        subprocess.run([str(CANOA), *args], cwd=shell.folder, env=env, stdout=theirs, timeout=30, check=True)
        return os.read(ours, 10_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)


# --- Listing ------------------------------------------------------------------------------------------


def test_tasks_are_listed_the_newest_first_and_filtered(keeping: Shell) -> None:
    ids = [submitted(keeping, "depot.fail", '{"reason": "full"}') for _ in range(3)]
    for task_id in ids:
        keeping.canoa("result", task_id, "--follow")

    listed = keeping.canoa("tasks", "--action", "depot.fail", "--outcome", "failed", "--limit", "2", "--json")

    assert [each["id"] for each in json.loads(listed.stdout)] == [ids[2], ids[1]]


def test_ids_and_actions_are_whole_in_tables_however_narrow(keeping: Shell) -> None:
    task_id = submitted(keeping, "depot.fail", json.dumps({"reason": "very " * 50}))
    keeping.canoa("result", task_id, "--follow")

    piped = keeping.canoa("tasks", "--limit", "1", COLUMNS="40").stdout
    seen = printed_on_a_terminal(keeping, "tasks", "--limit", "1", columns=40)

    assert "\x1b" not in piped
    for text in (piped, seen):
        (row,) = [line for line in text.splitlines() if task_id in line]
        assert "depot.fail" in row


def test_one_task_is_shown_in_full(keeping: Shell) -> None:
    task_id = submitted(keeping, "depot.echo", HELLO)
    keeping.canoa("result", task_id, "--follow")

    shown = keeping.canoa("tasks", task_id)

    for word in (task_id, "depot.echo", "ended", "ok", "submitted_at", "node_id"):
        assert word in shown.stdout


@pytest.mark.parametrize(("option", "value"), [("--state", "gone"), ("--outcome", "great"), ("--action", "x")])
def test_a_filter_that_is_none_is_wrong_use(keeping: Shell, option: str, value: str) -> None:
    run = keeping.canoa("tasks", option, value)

    assert (run.returncode, run.stdout) == (2, "")
    assert value in run.stderr
