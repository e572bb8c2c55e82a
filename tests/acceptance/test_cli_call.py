"""`canoa call` beside a running worker: what it prints, where, and how it ends."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.shell import CANOA, Shell

from canoa.testing import free_port
from canoa.testing.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canoa.testing import RabbitNode

HELLO = '{"text": "hello"}'


@pytest.fixture(scope="module")
def shell(rabbit_node: RabbitNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """One worker of the depot for all tests here."""
    vhost = rabbit_node.add_vhost()
    shell = Shell(tmp_path_factory.mktemp("depot"), env={"CANOA_BROKER": rabbit_node.url(vhost)})
    shell.start_worker()
    yield shell
    shell.close()
    rabbit_node.release_vhost(vhost)


def test_a_call_prints_the_result_alone(shell: Shell) -> None:
    called = shell.canoa("call", "depot.echo", HELLO)

    assert (called.returncode, called.stdout, called.stderr) == (0, '"hello"\n', "")


def test_a_call_with_json_tells_the_task_too(shell: Shell) -> None:
    called = shell.canoa("call", "depot.echo", HELLO, "--json")

    told = json.loads(called.stdout)
    assert (called.returncode, called.stderr) == (0, "")
    assert (told["action"], told["result"]) == ("depot.echo", "hello")
    assert told["task_id"]
    assert 0 < told["seconds"] < 30


def test_a_call_takes_a_urn_and_arguments_from_stdin(shell: Shell) -> None:
    called = shell.canoa("call", "urn:sapparchi:Action:depot.echo", "-", stdin='{"text": "ab", "times": 2}')

    assert (called.returncode, called.stdout) == (0, '"abab"\n')


def test_an_action_that_fails_is_exit_1_with_its_words_on_stderr(shell: Shell) -> None:
    called = shell.canoa("call", "depot.fail", '{"reason": "no stock"}')

    assert (called.returncode, called.stdout) == (1, "")
    assert "ValueError" in called.stderr
    assert "no stock" in called.stderr
    assert "Traceback" not in called.stderr


def test_with_json_an_error_is_json_too(shell: Shell) -> None:
    called = shell.canoa("call", "depot.nowhere", "--json")

    assert called.returncode == 2
    error = json.loads(called.stdout)["error"]
    assert error["type"] == "UnknownAction"
    assert error["message"] in called.stderr


def test_arguments_that_the_worker_refuses_are_named_with_what_it_takes(shell: Shell) -> None:
    called = shell.canoa("call", "depot.echo", '{"text": 7}')

    assert (called.returncode, called.stdout) == (1, "")
    assert "str" in called.stderr
    assert "$.text" in called.stderr
    assert "(text: str, *, times: int = 1)" in called.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["depot.missing"], "no worker has ever offered action 'depot.missing'"),
        (["echo"], "'echo' is not an action's name"),
        (["depot.echo", "{text"], "not JSON"),
        (["depot.echo", "[1]"], "must be a JSON object"),
        (["depot.echo", "[" * 5000], "not JSON"),
        (["depot.echo", "{}", "--colour"], "--colour"),
        ([], "Missing argument"),
        (["depot.echo", HELLO, "--broker", "http://localhost"], "use amqp://"),
        (["depot.echo", HELLO, "--broker", f"amqp://{LOOPBACK}:nonsense/"], "write amqp://"),
        (["depot.echo", HELLO, "--broker", "memory://"], "canoa site start"),
    ],
)
def test_wrong_use_is_exit_2_and_names_value_or_remedy(shell: Shell, args: list[str], says: str) -> None:
    called = shell.canoa("call", *args)

    assert (called.returncode, called.stdout) == (2, "")
    assert says in " ".join(called.stderr.split())
    assert "Traceback" not in called.stderr


def test_no_broker_named_is_wrong_use_and_names_the_remedy(shell: Shell) -> None:
    called = shell.canoa("call", "depot.echo", HELLO, CANOA_BROKER="")

    assert (called.returncode, called.stdout) == (2, "")
    assert "CANOA_BROKER" in called.stderr
    assert "canoa site start" in called.stderr


def test_a_wrong_password_is_wrong_use_and_is_not_repeated_to_anybody(shell: Shell) -> None:
    url = shell.env["CANOA_BROKER"].replace("guest:guest", "guest:hunter2")

    called = shell.canoa("call", "depot.echo", HELLO, CANOA_BROKER=url)

    assert (called.returncode, called.stdout) == (2, "")
    assert "check user, password and virtual host" in called.stderr
    assert "hunter2" not in called.stderr


def test_a_virtual_host_that_does_not_exist_is_wrong_use(shell: Shell) -> None:
    called = shell.canoa("call", "depot.echo", HELLO, CANOA_BROKER=shell.env["CANOA_BROKER"] + "-nowhere")

    assert (called.returncode, called.stdout) == (2, "")
    assert "virtual host" in called.stderr


def test_a_broker_that_is_not_there_is_exit_1_at_once(shell: Shell) -> None:
    called = shell.canoa("call", "depot.echo", HELLO, "--broker", f"amqp://{LOOPBACK}:{(port := free_port())}/")

    assert (called.returncode, called.stdout) == (1, "")
    assert str(port) in called.stderr
    assert "Traceback" not in called.stderr


def test_a_call_that_gives_up_waiting_is_exit_1_and_names_the_task(shell: Shell) -> None:
    called = shell.canoa("call", "depot.hold", '{"folder": "/"}', "--timeout", "0.3")

    assert (called.returncode, called.stdout) == (1, "")
    assert "no result after 0.3 s" in called.stderr


def seen_on_a_terminal(shell: Shell, **env: str) -> str:
    """What a person reads who makes a mistake: stderr is a terminal."""
    ours, theirs = pty.openpty()
    command = [str(CANOA), "call", "depot.missing"]
    try:
        subprocess.run(command, cwd=shell.folder, env={**shell.env, **env}, stderr=theirs, timeout=30)
        return os.read(ours, 10_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_colour_is_for_terminals_and_for_people_who_want_it(shell: Shell) -> None:
    assert "\x1b[31merror:" in seen_on_a_terminal(shell)
    assert "\x1b" not in seen_on_a_terminal(shell, NO_COLOR="1")
    assert "\x1b" not in shell.canoa("call", "depot.missing").stderr
