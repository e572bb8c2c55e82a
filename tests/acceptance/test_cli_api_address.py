"""How commands find the API of `canoa up`: by its folder, by settings, and what they say when it is not there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.shell import CANOA, DEPOT, ROOT, Shell

from canoa.testing import free_port
from canoa.testing.ports import LOOPBACK

if TYPE_CHECKING:
    from pathlib import Path

CALL = ["call", "depot.echo", '{"text": "hello"}']


@pytest.fixture
def home(offline: Shell, tmp_path: Path) -> Shell:
    """A folder in which nothing runs."""
    offline.folder = tmp_path / "home"
    offline.folder.mkdir()
    offline.env["PYTHONPATH"] += f":{ROOT}"
    return offline


def left_behind(shell: Shell, name: str) -> str:
    return (shell.folder / ".canoa" / name).read_text().strip()


def test_a_command_in_another_folder_takes_address_and_token_from_settings(home: Shell, tmp_path: Path) -> None:
    home.start(str(CANOA), "up", DEPOT, "--port", "0").wait_logged("Ctrl-C")
    settings = {"CANOA_API": left_behind(home, "address"), "CANOA_API_TOKEN": left_behind(home, "token")}
    home.folder = tmp_path

    assert home.canoa(*CALL).returncode == 2
    assert home.canoa(*CALL, **settings).stdout == '"hello"\n'
    refused = home.canoa(*CALL, **{**settings, "CANOA_API_TOKEN": "a-wrong-token-of-good-length"})
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "does not take our token" in refused.stderr


@pytest.mark.parametrize(
    "command",
    [
        CALL,
        ["map", "depot.echo", "-"],
        ["submit", "depot.echo"],
        ["result", "an-id"],
        ["cancel", "an-id"],
        ["tasks"],
        ["dead", "list"],
        ["dead", "show", "an-id"],
        ["dead", "redrive", "--all"],
    ],
)
def test_where_nothing_runs_every_command_names_the_remedy(home: Shell, command: list[str]) -> None:
    run = home.canoa(*command, stdin="{}")

    assert (run.returncode, run.stdout) == (2, "")
    for remedy in ("canoa up", "CANOA_BROKER", "canoa site start"):
        assert remedy in run.stderr


def test_the_address_of_a_killed_one_is_not_believed_since_anybody_may_answer_there(home: Shell) -> None:
    up = home.start(str(CANOA), "up", DEPOT, "--port", "0")
    up.wait_logged("Ctrl-C")
    up.kill()

    called = home.canoa(*CALL)

    assert (called.returncode, called.stdout) == (2, "")
    assert "no `canoa up` runs in this folder" in called.stderr


def test_an_address_at_which_nobody_answers_is_exit_1(home: Shell) -> None:
    settings = {"CANOA_API": f"http://{LOOPBACK}:{free_port()}", "CANOA_API_TOKEN": "a-token-of-good-length"}

    called = home.canoa(*CALL, **settings)

    assert (called.returncode, called.stdout) == (1, "")
    assert f"nobody answers at the API's address {settings['CANOA_API']}" in called.stderr
    assert "Traceback" not in called.stderr


def test_who_waits_gets_the_result_also_when_it_was_killed_and_started_again(home: Shell, tmp_path: Path) -> None:
    up = [str(CANOA), "up", DEPOT, "--port", str(free_port())]
    first = home.start(*up)
    first.wait_logged("Ctrl-C")
    caller = home.start(str(CANOA), "call", "depot.hold", json.dumps({"folder": str(tmp_path)}))
    caller.wait_logged("waiting for depot.hold")

    first.kill()
    (tmp_path / "release").touch()
    home.start(*up).wait_logged("Ctrl-C")

    assert (caller.wait(), caller.output()) == (0, '"held"\n')


@pytest.mark.rabbitmq
def test_a_broker_on_which_nobody_keeps_tasks_names_the_remedy(online: Shell) -> None:
    for command in (["submit", "depot.echo"], ["tasks"]):
        run = online.canoa(*command)

        assert (run.returncode, run.stdout) == (1, "")
        assert run.stderr == "error: nobody keeps tasks on this broker; start a recorder: canoa recorder\n"
