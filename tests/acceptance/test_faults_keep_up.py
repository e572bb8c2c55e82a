"""`canoa up` and its folder: held by one, free after a kill, refused when newer or broken, and a disk that is full."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.acceptance.kept_depot import TOKEN, http_answer
from tests.acceptance.shell import CANOA, DEPOT, ROOT, Process, Shell, until

from canoa.api.documents import PREFIX
from canoa.store import revision

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HELLO = '{"text": "hello"}'
BIG = {"action": "depot.echo", "arguments": {"text": "x" * 100_000}}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Shell]:
    """A shell in an empty folder."""
    shell = Shell(tmp_path, folder=tmp_path / "project")
    shell.folder.mkdir()
    shell.env |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "CANOA_API_TOKEN": TOKEN}
    yield shell
    shell.close()


def start_up(shell: Shell) -> Process:
    process = shell.start(str(CANOA), "up", DEPOT, "--port", "0")
    process.wait_logged("Ctrl-C")
    return process


def store_of(shell: Shell) -> Path:
    return shell.folder / ".canoa" / "canoa.db"


# --- One at a time ------------------------------------------------------------------------------------


def test_a_second_up_in_a_folder_says_who_holds_it_and_leaves_the_first_alone(folder: Shell) -> None:
    first = start_up(folder)

    second = folder.canoa("up", DEPOT, "--port", "0")

    assert (second.returncode, second.stdout) == (2, "")
    assert f"`canoa up {DEPOT}` (process {first.pid}, since " in second.stderr
    assert str(folder.folder) in second.stderr
    assert folder.canoa("submit", "depot.echo", HELLO, "--wait", "20").stdout == '"hello"\n'


def test_a_killed_up_leaves_no_lock_and_the_next_one_finishes_its_work(folder: Shell, tmp_path: Path) -> None:
    killed = start_up(folder)
    held = folder.canoa("submit", "depot.hold", json.dumps({"folder": str(tmp_path)})).stdout.strip()
    until((tmp_path / "started").exists)
    killed.kill()

    start_up(folder)

    (tmp_path / "release").touch()
    assert folder.canoa("result", held, "--wait", "20").stdout == '"held"\n'


# --- A store that cannot be used ----------------------------------------------------------------------


def test_a_store_of_a_newer_version_is_refused_with_both_versions_and_nothing_is_changed(folder: Shell) -> None:
    start_up(folder).kill()
    with closing(sqlite3.connect(store_of(folder))) as store, store:
        store.execute(f"UPDATE {revision.TABLE} SET version_num = '0099'")
    before = _dump(folder)

    refused = folder.canoa("up", DEPOT, "--port", "0")

    assert (refused.returncode, refused.stdout) == (2, "")
    assert re.search(r"has schema 0099, and Canoa \S+ knows only \d{4}; upgrade with", refused.stderr)
    assert "Traceback" not in refused.stderr
    assert _dump(folder) == before


def _dump(shell: Shell) -> list[str]:
    with closing(sqlite3.connect(store_of(shell))) as store:
        return list(store.iterdump())


@pytest.mark.parametrize("harm", ["not a database", "a hole"])
def test_a_store_that_is_broken_is_told_with_the_remedy_and_left_as_it_is(folder: Shell, harm: str) -> None:
    start_up(folder).kill()
    with closing(sqlite3.connect(store_of(folder))) as store:
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with store_of(folder).open("r+b") as file:
        file.seek(0 if harm == "not a database" else 100)
        file.write(b"\xff" * 8000)
    before = store_of(folder).read_bytes()

    refused = folder.canoa("up", DEPOT, "--port", "0")

    assert (refused.returncode, refused.stdout) == (2, "")
    assert "canoa.db is no usable SQLite database" in refused.stderr
    assert "move it away, or restore a backup of it" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert store_of(folder).read_bytes() == before


# --- A disk that is full ------------------------------------------------------------------------------


@pytest.fixture
def small_disk(folder: Shell) -> Iterator[Path]:
    """The folder's `.canoa` is a disk of four megabytes."""
    place = folder.folder / ".canoa"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if subprocess.run(mount, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("mounting a small disk needs root")
    yield place
    folder.close()
    subprocess.run(["umount", "--lazy", place], check=True)


def test_on_a_full_disk_submits_are_refused_results_wait_and_all_goes_on_when_there_is_room(
    folder: Shell, small_disk: Path, tmp_path: Path
) -> None:
    up = start_up(folder)
    held = folder.canoa("submit", "depot.hold", json.dumps({"folder": str(tmp_path)})).stdout.strip()
    until((tmp_path / "started").exists)
    _fill(small_disk / "filler")

    status, said = _submitted_until_refused(small_disk)
    (tmp_path / "release").touch()
    up.wait_logged("store_does_not_write")
    assert _task(folder, held)["state"] != "ended"

    (small_disk / "filler").unlink()

    assert (status, json.loads(said)["error"]["type"]) == (507, "StoreFull")
    assert "no room left for the store" in said
    assert folder.canoa("result", held, "--wait", "20").stdout == '"held"\n'
    assert folder.canoa("submit", "depot.echo", HELLO, "--wait", "20").stdout == '"hello"\n'
    assert up.is_alive


def _fill(file: Path) -> None:
    with file.open("wb", buffering=0) as filler:
        for size_bytes in (4096, 512):
            try:
                while filler.write(b"\0" * size_bytes):
                    pass
            except OSError:
                continue


def _submitted_until_refused(place: Path) -> tuple[int, str]:
    """SQLite's log may have some room of its own left."""
    url = (place / "address").read_text().strip()
    for _ in range(40):
        status, said = http_answer(f"{url}{PREFIX}/tasks", BIG)
        if status >= 400:
            return status, said
    raise AssertionError("there is always room")


def _task(shell: Shell, task_id: str) -> dict[str, Any]:
    return dict(json.loads(shell.canoa("tasks", task_id, "--json").stdout))
