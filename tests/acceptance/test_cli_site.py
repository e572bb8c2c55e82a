"""`canoa site` as a developer meets it: separate commands, one broker that stays."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from canoa.testing import RabbitNode, free_port
from canoa.testing.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLI = """
import typer
from canoa.cli.site import site_app

app = typer.Typer()
app.add_typer(site_app, name="site")
app()
"""


class Shell:
    """Runs commands in one folder, each as a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def canoa(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", CLI, *args], cwd=self.folder, capture_output=True, text=True, timeout=100
        )


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    yield Shell(tmp_path)
    for folder in (tmp_path / ".canoa" / "site").glob("*"):
        RabbitNode(folder).kill()


@pytest.mark.rabbitmq
def test_a_site_is_started_once_answers_to_other_commands_and_is_stopped(shell: Shell) -> None:
    started = shell.canoa("site", "start", "--port", str(port := free_port()))

    assert (started.returncode, started.stdout) == (0, f"amqp://guest:guest@127.0.0.1:{port}/%2F\n"), started.stderr
    assert "canoa site stop" in started.stderr
    socket.create_connection((LOOPBACK, port)).close()

    again = shell.canoa("site", "start")

    assert (again.returncode, again.stdout) == (0, started.stdout)
    assert "already running" in again.stderr

    status = shell.canoa("site", "status", "--json")
    site = json.loads(status.stdout)

    assert (status.returncode, site["running"], site["url"] + "\n") == (0, True, started.stdout)
    assert b"rabbitmq_build_info" in urllib.request.urlopen(site["metrics_url"], timeout=10).read()
    for address in (site["management_url"], site["mqtt_url"]):
        socket.create_connection((LOOPBACK, urlsplit(address).port)).close()

    stopped = shell.canoa("site", "stop")

    assert stopped.returncode == 0
    assert "is stopped" in stopped.stderr
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, port))
    assert RabbitNode(shell.folder / ".canoa/site/default").url() + "\n" == started.stdout  # kept for the next start


def test_the_status_of_a_site_that_does_not_run_is_exit_1_and_says_how_to_start_it(shell: Shell) -> None:
    status = shell.canoa("site", "status", "--name", "plant", "--json")

    assert status.returncode == 1
    assert json.loads(status.stdout) == {
        "name": "plant",
        "running": False,
        "folder": str(shell.folder / ".canoa/site/plant"),
    }
    assert "canoa site start --name plant" in status.stderr


def test_stopping_a_site_that_does_not_run_is_not_an_error(shell: Shell) -> None:
    stopped = shell.canoa("site", "stop")

    assert (stopped.returncode, stopped.stdout) == (0, "")
    assert "was not running" in stopped.stderr


def test_asking_about_a_site_creates_nothing(shell: Shell) -> None:
    shell.canoa("site", "status")
    shell.canoa("site", "stop")

    assert not list(shell.folder.iterdir())


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--name", "../elsewhere"], "../elsewhere"),
        (["--port", "70000"], "70000"),
        (["--plugins", "rabbitmq_teleport"], "rabbitmq_teleport"),
    ],
)
def test_a_start_that_cannot_work_is_wrong_use_and_says_which_value(shell: Shell, args: list[str], says: str) -> None:
    started = shell.canoa("site", "start", *args)

    assert (started.returncode, started.stdout) == (2, "")
    assert says in started.stderr
    assert not RabbitNode(shell.folder / ".canoa/site/default").is_running


def test_a_taken_port_is_told_and_nothing_is_started(shell: Shell) -> None:
    with socket.create_server((LOOPBACK, port := free_port())):
        started = shell.canoa("site", "start", "--port", str(port))

    assert (started.returncode, started.stdout) == (1, "")
    assert f"port {port}" in started.stderr
