"""Run by Alembic: migrates on the connection that `canoa.store.migrating` hands over, inside its transaction."""

from __future__ import annotations

from alembic import context

from canoa.store.schema import REVISION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, version_table=REVISION_TABLE
)
context.run_migrations()
