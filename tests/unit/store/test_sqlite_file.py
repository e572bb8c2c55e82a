"""A SQLite store and its file: no room, no permission, no database, somebody else's lock."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.contract.store.words import accept, accepted, applied

from canoa.errors import SettingError, StoreFull, StoreUnreachable
from canoa.store import sqlite_link
from canoa.store.port import TaskFilter
from canoa.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

BIG = "x" * 50_000


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "canoa.db")
    await store.open()
    yield store
    await store.aclose()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


async def fill(store: SqliteStore) -> int:
    """Accept until there is no room; how many were accepted."""
    for number in range(10_000):
        try:
            await accepted(store, f"filler-{number}", content_encoding=BIG)
        except StoreFull:
            return number
    raise AssertionError("there is always room")


def rights(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


async def count(store: SqliteStore) -> int:
    return len(await store.tasks(TaskFilter(), limit=10_000))


async def test_a_new_store_can_be_read_by_its_owner_alone(store: SqliteStore, tmp_path: Path) -> None:
    await accepted(store, "secret")

    assert rights(tmp_path) == dict.fromkeys(("canoa.db", "canoa.db-wal", "canoa.db-shm"), 0o600)


async def test_the_folder_of_a_new_store_is_made(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "new" / "folder" / "canoa.db")

    await store.open()

    await accepted(store, "a")
    await store.aclose()


async def test_a_full_disk_refuses_and_accepts_again_when_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(600_000))
    store = SqliteStore(small_disk / "canoa.db")
    await store.open()
    taken = await fill(store)
    assert taken > 0
    with pytest.raises(StoreFull, match="room"):
        await applied(store, accept("a", content_encoding=BIG), accept("b"))
    assert await count(store) == taken

    ballast.unlink()

    await accepted(store, "a", content_encoding=BIG)
    assert await count(store) == taken + 1
    await store.aclose()


async def test_a_new_store_on_a_full_disk_says_so(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with pytest.raises(OSError, match="No space"):
        ballast.write_bytes(bytes(4_000_000))
    store = SqliteStore(small_disk / "canoa.db")

    with pytest.raises(StoreFull, match="room"):
        await store.open()

    ballast.unlink()
    await store.open()
    await accepted(store, "a")
    await store.aclose()


async def test_a_file_that_may_not_grow_refuses_and_accepts_again_when_it_may(store: SqliteStore) -> None:
    def limit(connection: sqlite3.Connection, *, pages: int) -> None:
        connection.execute(f"PRAGMA max_page_count={pages}")

    await store._writer.read(lambda connection: limit(connection, pages=100))
    taken = await fill(store)
    with pytest.raises(StoreFull):
        await applied(store, accept("a"), accept("b", content_encoding=BIG))
    assert await count(store) == taken

    await store._writer.read(lambda connection: limit(connection, pages=10**6))

    await accepted(store, "a", "b", content_encoding=BIG)


async def test_a_store_that_another_program_locks_is_unreachable_until_it_lets_go(
    store: SqliteStore, tmp_path: Path
) -> None:
    await store._writer.read(lambda connection: connection.execute("PRAGMA busy_timeout=50"))
    with closing(sqlite3.connect(tmp_path / "canoa.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(StoreUnreachable, match="locked"):
            await applied(store, accept("a"))
        assert await count(store) == 0  # reading goes on

        other.execute("ROLLBACK")
    await accepted(store, "a")


async def test_a_long_read_does_not_hold_up_writes(store: SqliteStore) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def long_read(connection: sqlite3.Connection) -> None:
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(may_end.wait(), loop).result(timeout=10)

    reading = asyncio.create_task(store._reader.read(long_read))
    await begun.wait()

    await accepted(store, "a")

    may_end.set()
    await reading
    assert await count(store) == 1


@pytest.mark.parametrize(
    "content", [b"this is no database, only a text of some length\n" * 100, b"SQLite format 3\0" + b"\xff" * 9000]
)
async def test_a_file_that_is_no_database_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "canoa.db"
    path.write_bytes(content)

    store = SqliteStore(path)
    with pytest.raises(SettingError, match=r"canoa\.db is no usable SQLite database"):
        await store.open()

    assert path.read_bytes() == content


async def test_a_folder_in_place_of_the_file_is_refused_by_name(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)

    with pytest.raises(SettingError, match="cannot be opened"):
        await store.open()


async def test_a_file_in_place_of_the_folder_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(SettingError, match="folder"):
        await SqliteStore(tmp_path / "file" / "canoa.db").open()


def test_commits_wait_for_the_disk(tmp_path: Path) -> None:
    with closing(sqlite_link.connect(tmp_path / "canoa.db")) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
