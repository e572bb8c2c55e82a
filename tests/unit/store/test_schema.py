"""The migrations lead to the tables that the code uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from canoa.broker.port import Message, Publication
from canoa.execution.outcome import Outcome
from canoa.store import revision
from canoa.store.migrating import new_config
from canoa.store.packing import pack
from canoa.store.port import TaskFilter
from canoa.store.routed_port import Owed
from canoa.store.schema import metadata
from canoa.store.sqlite import SqliteStore
from canoa.vocabulary import TaskId

if TYPE_CHECKING:
    from pathlib import Path


async def test_the_migrations_lead_to_the_schema(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "canoa.db")
    await store.open()
    await store.aclose()

    engine = sa.create_engine(f"sqlite:///{tmp_path / 'canoa.db'}")
    with engine.connect() as connection:
        assert (
            compare_metadata(MigrationContext.configure(connection, opts={"version_table": revision.TABLE}), metadata)
            == []
        )
    engine.dispose()


async def test_a_store_of_the_version_before_is_brought_up_to_date_with_all_it_keeps(tmp_path: Path) -> None:
    path = tmp_path / "canoa.db"
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        config = new_config()
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
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
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        config = new_config()
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
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
