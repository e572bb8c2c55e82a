"""Run by Alembic: migrates on the connection that `canoa.store.migrating` hands over, inside its transaction."""

from __future__ import annotations

from alembic import context

from canoa.store import revision
from canoa.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, version_table=revision.TABLE
)
context.run_migrations()
