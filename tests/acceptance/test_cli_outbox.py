"""`canoa outbox` shows what waits; `canoa worker` has one where somebody will come back for it."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.shell import DEPOT, Shell

from canoa.broker.port import Message
from canoa.cli.outbox import outbox_of
from canoa.worker.outbox import Entry, Outbox, OutboxLimits
from canoa.worker.outbox_file import is_held

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """In a folder of its own."""
    shell = Shell(tmp_path, folder=tmp_path)
    yield shell
    shell.close()


@pytest.fixture
def box(shell: Shell) -> Iterator[Path]:
    """An outbox that its worker has open: two answers wait, and one was dropped."""
    path = shell.folder / ".canoa" / "outbox-gw-1.db"
    with closing(Outbox.open(path, OutboxLimits(max_messages=2), now=lambda: 1_700_000_000_000)) as outbox:
        for number in range(3):
            urn = f"urn:sapparchi:Action:depot.{'scan' if number < 2 else 'weigh'}"
            outbox.put(Entry(request_id=f"r{number}", action=urn, message=Message(body=b"{}")))
        yield path


def test_what_waits_is_shown_by_action_and_what_was_dropped_is_said(shell: Shell, box: Path) -> None:
    done = shell.canoa("outbox")

    lines = [line.split() for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert lines[0] == ["outbox", "action", "answers", "bytes", "oldest"]
    assert [line[:3] for line in lines[2:]] == [
        [".canoa/outbox-gw-1.db", "depot.scan", "1"],
        [".canoa/outbox-gw-1.db", "depot.weigh", "1"],
    ]
    assert "has dropped 1 answers for want of room" in done.stderr


def test_programs_read_it_as_json(shell: Shell, box: Path) -> None:
    done = shell.canoa("outbox", str(box), "--json")

    [told] = json.loads(done.stdout)
    assert (told["messages"], told["remembered"], told["dropped"]) == (2, 0, 1)
    assert told["oldest_at"] == "2023-11-14T22:13:20Z"
    assert [each["action"] for each in told["actions"]] == ["depot.scan", "depot.weigh"]
    assert told["bytes"] == sum(each["bytes"] for each in told["actions"])


def test_empty_ones_of_workers_that_are_gone_are_left_out(shell: Shell, box: Path) -> None:
    gone, idle, left = (box.with_name(f"outbox-{name}.db") for name in ("gone", "idle", "left"))
    Outbox.open(gone).close()
    with closing(Outbox.open(left)) as outbox:
        outbox.put(Entry(request_id="r", action="urn:sapparchi:Action:depot.scan", message=Message(body=b"{}")))
    with closing(Outbox.open(idle)):  # its worker runs, and has nothing to keep
        listed, everything = shell.canoa("outbox", "--json"), shell.canoa("outbox", "--all", "--json")
        said, named = shell.canoa("outbox"), shell.canoa("outbox", str(gone))

    assert {Path(each["path"]).name: each["is_held"] for each in json.loads(listed.stdout)} == {
        box.name: True,
        idle.name: True,
        left.name: False,
    }
    assert gone.name in {Path(each["path"]).name for each in json.loads(everything.stdout)}
    assert "left out: 1, empty, that no worker has any more; --all shows them\n" in said.stderr
    assert gone.name not in said.stdout + said.stderr
    assert named.stderr == f"nothing waits in {gone}\n"


def test_whoever_looks_does_not_keep_a_worker_from_its_outbox(shell: Shell, box: Path) -> None:
    other = box.with_name("outbox-gw-2.db")
    Outbox.open(other).close()

    assert (is_held(box), is_held(other), is_held(box.with_name("nobody.db"))) == (True, False, False)
    with closing(Outbox.open(other)):
        assert is_held(other)


def test_a_setting_names_the_file(shell: Shell, box: Path) -> None:
    shell.folder = box.parent

    assert "depot.scan" in shell.canoa("outbox", CANOA_OUTBOX=box.name).stdout


def test_where_there_is_none_it_says_what_to_do(shell: Shell) -> None:
    nowhere, missing = shell.canoa("outbox"), shell.canoa("outbox", "box.db")

    assert nowhere.returncode == 2
    assert "name the file, or start a worker with --node-id" in nowhere.stderr
    assert missing.returncode == 1
    assert "there is no outbox box.db" in missing.stderr


def test_writing_first_needs_somewhere_to_write(shell: Shell) -> None:
    shell.env["PYTHONPATH"] += f":{Path.cwd()}"

    done = shell.canoa("worker", DEPOT, "--broker", "amqp://127.0.0.1:1", CANOA_OUTBOX_ALWAYS="true")

    assert done.returncode == 2
    assert "outbox_always needs an outbox: give the worker a name (--node-id)" in done.stderr


@pytest.mark.parametrize(
    ("given", "node_id", "join", "path"),
    [
        ("", "gw-1", True, ".canoa/outbox-gw-1.db"),
        ("", "", True, ""),  # the name is made up, and nobody comes back under it
        ("box.db", "", True, "box.db"),
        ("box.db", "gw-1", True, "box.db"),
        ("none", "gw-1", True, ""),
        ("box.db", "gw-1", False, ""),  # no manager sends anything
    ],
)
def test_a_worker_has_one_by_its_name(given: str, node_id: str, join: bool, path: str) -> None:
    assert outbox_of(given, node_id, join=join) == path
