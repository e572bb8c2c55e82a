"""A PostgreSQL store and its server: restarted, killed, gone, full, or not ours to use."""

from __future__ import annotations

import asyncio
import os
import random
import string
import subprocess
from typing import TYPE_CHECKING

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.ext.asyncio import create_async_engine
from tests.contract.store.words import accept, accepted, applied, end, row

from canoa.errors import SettingError, StoreFull, StoreUnreachable, WrongUse
from canoa.store import revision
from canoa.store.migrating import upgrade
from canoa.store.port import Accepted, State, TaskFilter
from canoa.store.postgres import PostgresStore
from canoa.store.schema import metadata
from canoa.testing import PostgresNode, free_port
from canoa.testing.ports import LOOPBACK
from canoa.vocabulary import ActionName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    import sqlalchemy as sa

    from canoa.testing.pytest_plugin import ProxyFactory

WITHIN_S = 60.0


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url)
    await store.open()
    yield store
    await store.aclose()


async def test_a_store_comes_back_by_itself_after_a_restart(store: PostgresStore, postgres_node: PostgresNode) -> None:
    await asyncio.gather(*(accepted(store, f"{number}") for number in range(8)))  # several connections

    await asyncio.to_thread(postgres_node.restart)

    async with asyncio.timeout(WITHIN_S):
        await until_reachable(store)
    assert await applied(store, accept("0"), accept("new")) == [Accepted(is_new=False), Accepted(is_new=True)]


async def test_what_is_too_long_for_an_index_is_wrong_use(store: PostgresStore) -> None:
    """A plain error of the server would be tried again for ever."""
    long = ActionName("".join(random.Random(7).choices(string.ascii_letters, k=20_000)))

    with pytest.raises(WrongUse, match="cannot keep") as refused:
        await applied(store, accept("a", action=long))

    assert refused.type is WrongUse


async def test_a_store_that_is_away_is_unreachable(store: PostgresStore, postgres_node: PostgresNode) -> None:
    await asyncio.to_thread(postgres_node.stop)

    with pytest.raises(StoreUnreachable):
        await applied(store, accept("a"))
    with pytest.raises(StoreUnreachable):
        await store.tasks(TaskFilter(), limit=1)

    await asyncio.to_thread(postgres_node.start)
    await until_reachable(store)
    await accepted(store, "a")


async def test_what_was_kept_outlives_a_killed_server(store: PostgresStore, postgres_node: PostgresNode) -> None:
    kept: list[str] = []

    async def keep_on() -> None:
        for number in range(100_000):
            await applied(store, *(accept(f"{number}-{part}") for part in range(10)))
            kept.append(f"{number}")

    writing = asyncio.create_task(keep_on())
    while len(kept) < 20:
        await asyncio.sleep(0)
        assert not writing.done()

    await asyncio.to_thread(postgres_node.kill)
    with pytest.raises(StoreUnreachable):
        await writing

    await asyncio.to_thread(postgres_node.start)
    await until_reachable(store)
    found = {task.id for task in await store.tasks(TaskFilter(), limit=100_000)}
    assert found >= {f"{number}-{part}" for number in kept for part in range(10)}
    assert len(found) % 10 == 0  # nothing by halves


async def test_a_batch_whose_link_is_cut_can_be_repeated(postgres_url: str, tcp_proxy: ProxyFactory) -> None:
    proxy = await tcp_proxy(postgres_url)
    store = PostgresStore(proxy.via(postgres_url))
    await store.open()
    await accepted(store, "a")

    proxy.cut()
    with pytest.raises(StoreUnreachable):
        await applied(store, accept("b"), end("a"))
    proxy.restore()

    await until_reachable(store)
    await applied(store, accept("b"), end("a"))
    assert ((await row(store, "a")).state, (await row(store, "b")).state) == (State.ENDED, State.WAITING)
    await store.aclose()


async def test_a_server_that_is_not_there_is_unreachable(postgres_url: str) -> None:
    with pytest.raises(StoreUnreachable, match=r"127\.0\.0\.1"):
        await PostgresStore(f"postgresql://me:secret@{LOOPBACK}:{free_port()}/db").open()


async def test_a_store_that_lets_us_not_in_is_a_setting_to_mend(postgres_url: str, postgres_node: PostgresNode) -> None:
    wrong_password = postgres_url.replace(":canoa@", ":secret@")

    with pytest.raises(SettingError, match="password") as caught:
        await PostgresStore(wrong_password).open()
    with pytest.raises(SettingError, match="nowhere"):
        await PostgresStore(postgres_node.url("nowhere")).open()

    assert "secret" not in str(caught.value)


async def test_a_user_who_may_not_create_tables_is_told_so(postgres_url: str, postgres_node: PostgresNode) -> None:
    database = postgres_url.rpartition("/")[2]
    postgres_node.sql("CREATE ROLE guest LOGIN PASSWORD 'guest'")
    postgres_node.sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC", database=database)

    with pytest.raises(SettingError, match="permission denied"):
        await PostgresStore(postgres_url.replace("canoa:canoa@", "guest:guest@")).open()


def migrate(connection: sa.Connection) -> list[object]:
    """Through the migrations; says where they do not lead to the tables that the code uses."""
    upgrade(connection)
    context = MigrationContext.configure(connection, opts={"version_table": revision.TABLE})
    return list(compare_metadata(context, metadata))


def described(connection: sa.Connection) -> set[tuple[object, ...]]:
    columns = "SELECT table_name, column_name, data_type, is_nullable, collation_name FROM information_schema.columns"
    selects = [
        f"{columns} WHERE table_schema = 'public'",
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'",
        "SELECT relname, array_to_string(reloptions, ',') FROM pg_class WHERE relkind = 'r' AND reloptions IS NOT NULL",
        f"SELECT 'revision', version_num FROM {revision.TABLE}",
    ]
    return {tuple(row) for select in selects for row in connection.exec_driver_sql(select)}


async def test_the_migrations_lead_to_the_schema_that_an_empty_database_gets(
    store: PostgresStore, postgres_url: str, postgres_node: PostgresNode
) -> None:
    other = postgres_node.url(postgres_node.add_database())
    engines = [
        create_async_engine(each.replace("postgresql:", "postgresql+asyncpg:")) for each in (postgres_url, other)
    ]

    async with engines[0].connect() as new, engines[1].begin() as migrated:
        assert await migrated.run_sync(migrate) == []
        assert await new.run_sync(described) == await migrated.run_sync(described)
    for engine in engines:
        await engine.dispose()


async def test_a_full_disk_refuses_and_accepts_again_when_there_is_room(
    postgres_node: PostgresNode, small_disk: Path
) -> None:
    postgres_node.sql(f"CREATE TABLESPACE small LOCATION '{small_disk / 'data'}'")
    postgres_node.sql("CREATE DATABASE on_small TABLESPACE small")
    store = PostgresStore(postgres_node.url("on_small"))
    try:
        await store.open()
        taken = await fill(store)
        with pytest.raises(StoreFull, match="room"):
            await applied(store, *(accept(f"more-{number}", content_encoding=noise()) for number in range(20)))
        assert len(await store.tasks(TaskFilter(), limit=10_000)) == taken

        (small_disk / "ballast").unlink()

        await accepted(store, "a", content_encoding=noise())
    finally:
        await store.aclose()
        postgres_node.drop_database("on_small")
        postgres_node.sql("DROP TABLESPACE small")


async def until_reachable(store: PostgresStore) -> None:
    """Connections that the server has not closed yet may fail once more."""
    while True:
        try:
            await store.tasks(TaskFilter(), limit=1)
            return
        except StoreUnreachable:
            await asyncio.sleep(0.02)


async def fill(store: PostgresStore) -> int:
    """Accept until there is no room; how many were accepted."""
    for number in range(10_000):
        try:
            await accepted(store, f"filler-{number}", content_encoding=noise())
        except StoreFull:
            return number
    raise AssertionError("there is always room")


def noise() -> str:
    """What PostgreSQL cannot compress."""
    return os.urandom(100_000).hex()


@pytest.fixture
def small_disk(postgres_node: PostgresNode) -> Iterator[Path]:
    """Of 24 MB, of which 6 MB are taken by a file `ballast`. A database alone takes 8."""
    folder = postgres_node.folder / "small"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder], stderr=subprocess.DEVNULL
    ).returncode:
        folder.rmdir()
        pytest.skip("mounting a small disk needs root")
    owner = postgres_node.folder.stat()
    for path in (folder, folder / "data"):
        path.mkdir(exist_ok=True)
        os.chown(path, owner.st_uid, owner.st_gid)
    (folder / "ballast").write_bytes(bytes(6_000_000))
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)
    folder.rmdir()
