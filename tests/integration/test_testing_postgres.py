"""Private PostgreSQL servers: honest when they fail, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from canoa.errors import SettingError
from canoa.testing import PostgresFailed, PostgresMissing, PostgresNode, postgres_setup
from canoa.testing.processes import children, is_alive, wait_gone

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def node(postgres_node: PostgresNode) -> Iterator[PostgresNode]:
    """The shared server, up again after the test whatever the test did to it."""
    postgres_node.start()
    yield postgres_node
    postgres_node.start()


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that an unprivileged user can reach."""
    with tempfile.TemporaryDirectory(prefix="canoa-postgres-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def family(node: PostgresNode) -> list[int]:
    assert node.pid is not None
    return [node.pid, *children(node.pid)]


def test_every_test_gets_an_empty_database_of_its_own(node: PostgresNode, postgres_url: str) -> None:
    database = postgres_url.rpartition("/")[2]

    assert node.sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", database=database) == "0"
    assert node.url(database) == postgres_url


def test_a_stopped_server_leaves_no_process_and_comes_back_with_its_data(node: PostgresNode) -> None:
    database = node.add_database()
    processes = family(node)
    assert len(processes) > 1

    node.stop()
    assert not node.is_running
    assert not any(map(is_alive, processes))

    node.start()
    node.drop_database(database)


def test_a_killed_server_is_gone_at_once_and_recovers(node: PostgresNode) -> None:
    node.sql("CREATE TABLE IF NOT EXISTS kept (at int)")
    processes = family(node)

    node.kill()
    assert not any(map(is_alive, processes))

    node.start()
    assert node.sql("SELECT count(*) FROM kept") == "0"


def test_a_second_object_on_the_same_folder_finds_the_server(node: PostgresNode) -> None:
    other = PostgresNode(node.folder)

    assert (other.port, other.pid) == (node.port, node.pid)


def test_a_statement_that_fails_says_why(node: PostgresNode) -> None:
    with pytest.raises(PostgresFailed, match="syntax error"):
        node.sql("SELEKT 1")


def test_a_server_that_cannot_start_says_why(folder: Path) -> None:
    with pytest.raises(PostgresFailed, match="no_such_setting"):
        PostgresNode(folder, config={"no_such_setting": "1"}).start()


def test_a_server_ends_with_the_process_that_started_it(folder: Path) -> None:
    code = f"""
import os, pathlib, signal
from canoa.testing import PostgresNode
node = PostgresNode(pathlib.Path({str(folder)!r}))
node.start()
print(node.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.returncode == -signal.SIGKILL, ended.stderr

    assert wait_gone(int(ended.stdout), timeout_s=10)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hands the server over to somebody else")
def test_a_folder_that_the_servers_user_cannot_reach_is_refused(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)

    with pytest.raises(SettingError, match="closed to others"):
        PostgresNode(closed / "server").start()


def test_a_machine_without_postgresql_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(postgres_setup, "DEBIAN_VERSIONS", folder)
    monkeypatch.setenv("PATH", str(folder))

    with pytest.raises(PostgresMissing, match="apt-get install postgresql"):
        PostgresNode(folder / "server").start()
