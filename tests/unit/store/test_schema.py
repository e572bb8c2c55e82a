"""The migrations lead to the tables that the code uses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from canoa.broker.port import Message, Publication
from canoa.execution.outcome import Outcome
from canoa.store import revision
from canoa.store.migrating import new_config, upgrade
from canoa.store.packing import pack
from canoa.store.port import TaskFilter
from canoa.store.routed_port import Owed
from canoa.store.schema import metadata
from canoa.store.sqlite import SqliteStore
from canoa.vocabulary import TaskId

if TYPE_CHECKING:
    from pathlib import Path


def migrated(path: Path, to: str = "head") -> sa.Engine:
    """A store that came to its schema through the migrations."""
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        upgrade(connection, to)
    return engine


def described(connection: sa.Connection) -> dict[str, set[str]]:
    """By table and index: all lines that define it, in any order, for a column that was added stands last."""
    rows = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {name: set(re.split(r"[\n,]\s*", sql.replace('"', "").replace("\t", " "))) for name, sql in rows}


def test_the_migrations_lead_to_the_schema(tmp_path: Path) -> None:
    engine = migrated(tmp_path / "canoa.db")

    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": revision.TABLE})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


async def test_an_empty_store_gets_what_the_migrations_lead_to(tmp_path: Path) -> None:
    by_migrations = migrated(tmp_path / "migrated.db")
    store = SqliteStore(tmp_path / "new.db")
    await store.open()
    await store.aclose()
    new = sa.create_engine(f"sqlite:///{tmp_path / 'new.db'}")

    with by_migrations.connect() as one, new.connect() as other:
        assert described(other) == described(one)
        assert other.exec_driver_sql(revision.SELECT).scalar() == one.exec_driver_sql(revision.SELECT).scalar()
    by_migrations.dispose()
    new.dispose()


async def test_a_store_of_the_version_before_is_brought_up_to_date_with_all_it_keeps(tmp_path: Path) -> None:
    path = tmp_path / "canoa.db"
    engine = migrated(path, "0001")
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO tasks (id, action, standing, submitted_ms, attempts, run, reply_to, message, result) "
            "VALUES ('a', 'shop.resize', 'ok', 5, 1, 0, 'caller', x'01', x'02')"
        )
    engine.dispose()

    store = SqliteStore(path)
    await store.open()
    try:
        found = await store.task(TaskId("a"))
        assert found is not None
        assert (found.submitted_ms, found.outcome, await store.plan_of(TaskId("a"))) == (5, Outcome.OK, None)
        (same,) = await store.tasks(TaskFilter(outcome=Outcome.OK), limit=5)
        assert same == found
    finally:
        await store.aclose()


async def test_what_an_older_store_has_yet_to_send_is_sent_after_the_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "canoa.db"
    publication = Publication(message=Message(body=b"{}", headers={"nodeId": b"\x00"}, message_id="m"), key="caller")
    engine = migrated(path, "0002")
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO owed VALUES ('a.0.reply.caller', 5, ?)", (pack(publication),))
    engine.dispose()

    store = SqliteStore(path)
    await store.open()
    try:
        assert await store.take_owed(now_ms=6, limit=5, for_ms=1000) == [
            Owed(key="a.0.reply.caller", publication=publication)
        ]
    finally:
        await store.aclose()


def test_the_last_revision_is_the_one_that_the_code_knows() -> None:
    assert ScriptDirectory.from_config(new_config()).get_current_head() == revision.HEAD
