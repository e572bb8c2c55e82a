"""The migrations lead to the tables that the code uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from canoa.store import revision
from canoa.store.migrating import new_config
from canoa.store.schema import metadata
from canoa.store.sqlite import SqliteStore

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


def test_the_last_revision_is_the_one_that_the_code_knows() -> None:
    assert ScriptDirectory.from_config(new_config()).get_current_head() == revision.HEAD
