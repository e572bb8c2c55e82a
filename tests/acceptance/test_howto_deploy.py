"""The page on deploying tells the truth: its users may do their part and no more, its copies are ones to go on from."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.shell import CANOA, DEPOT, ROOT, Shell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from canoa.testing import RabbitNode

PAGE = (ROOT / "docs" / "howto" / "deploy.md").read_text()
COPY = re.compile(r"^    /opt/canoa/bin/python (-c .*VACUUM.*)$", re.MULTILINE)


class Deployed:
    """A virtual host, and a user for each role with the rights that `canoa doctor --permissions` prints."""

    def __init__(self, shell: Shell, node: RabbitNode, vhost: str) -> None:
        self._node = node
        self._vhost = vhost
        printed = shell.canoa("doctor", DEPOT, "--broker", node.url(vhost), "--permissions").stdout
        for line in printed.splitlines():
            words = shlex.split(line)
            user = f"{words[4]}-{vhost}"  # users belong to the whole node
            node.ctl("add_user", user, "secret")
            node.ctl(*words[1:4], user, *words[5:])

    def url(self, role: str) -> str:
        return self._node.url(self._vhost).replace("guest:guest", f"canoa-{role}-{self._vhost}:secret")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path, folder=tmp_path)
    shell.env["PYTHONPATH"] += f":{ROOT}"
    yield shell
    shell.close()


@pytest.fixture
def deployed(shell: Shell, rabbit_node: RabbitNode) -> Iterator[Deployed]:
    vhost = rabbit_node.add_vhost()
    yield Deployed(shell, rabbit_node, vhost)
    rabbit_node.release_vhost(vhost)


def copy_as_the_page_says(folder: Path) -> Path:
    found = COPY.search(PAGE)
    assert found is not None
    subprocess.run([sys.executable, *shlex.split(found[1])], cwd=folder, check=True, timeout=60)
    return folder / "backup.db"


def kept(shell: Shell, text: str) -> str:
    """The id of a task that has ended."""
    task_id = shell.canoa("submit", "depot.echo", json.dumps({"text": text})).stdout.strip()
    assert shell.canoa("result", task_id, "--follow").returncode == 0
    return task_id


@pytest.mark.rabbitmq
def test_with_the_printed_rights_each_role_does_its_part_and_no_client_runs_actions(
    shell: Shell, deployed: Deployed, postgres_url: str
) -> None:
    recorder = {"CANOA_BROKER": deployed.url("recorder"), "CANOA_STORE": postgres_url}
    shell.start(str(CANOA), "recorder", **recorder).wait_logged("recorder_ready")
    shell.start_worker(CANOA_BROKER=deployed.url("worker"))
    shell.env["CANOA_BROKER"] = deployed.url("client")

    task_id = kept(shell, "axe")
    failed = shell.canoa("submit", "depot.fail", '{"reason": "blunt"}', "--follow")
    redriven = shell.canoa("dead", "redrive", "--all")
    not_allowed = shell.canoa("worker", DEPOT, "--wait", "0")

    assert shell.canoa("result", task_id).stdout == '"axe"\n'
    assert "blunt" in failed.stderr
    assert "redrove 1" in redriven.stderr
    assert not_allowed.returncode == 2, not_allowed.stderr


def test_a_restored_copy_knows_what_ended_before_it_and_nothing_later(shell: Shell, tmp_path: Path) -> None:
    up = [str(CANOA), "up", DEPOT, "--port", "0"]
    running = shell.start(*up)
    running.wait_logged("Ctrl-C")
    before = kept(shell, "axe")

    copy = copy_as_the_page_says(tmp_path)
    after = kept(shell, "saw")
    running.kill()
    for name in ("canoa.db", "canoa.db-wal", "canoa.db-shm"):
        (tmp_path / ".canoa" / name).unlink(missing_ok=True)
    copy.rename(tmp_path / ".canoa" / "canoa.db")
    shell.start(*up).wait_logged("Ctrl-C")

    assert shell.canoa("result", before).stdout == '"axe"\n'
    assert "no task" in shell.canoa("result", after).stderr
