"""Bringing a store's schema up to date, and refusing one that is newer than we are.

The caller holds the lock and the transaction; here is what happens inside them. Alembic is only imported where there
is something to do: a program that finds its store up to date starts without it.
"""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING, Final

from canoa.errors import StoreTooNew
from canoa.store.schema import HEAD, REVISION_TABLE

if TYPE_CHECKING:
    from sqlalchemy import Connection

SELECT_REVISION: Final = f"SELECT version_num FROM {REVISION_TABLE}"


def is_current(revision: str | None, *, place: str) -> bool:
    """Whether nothing needs to be done; None is an empty store. Raises `StoreTooNew`, naming the store's `place`."""
    # Revisions are numbers of four digits, so the later one is the greater one.
    if revision is not None and revision > HEAD:
        raise StoreTooNew(
            f"the store {place} has schema {revision}, and Canoa {metadata.version('canoa')} knows only {HEAD}; "
            "upgrade with: pip install --upgrade 'canoa[server]', or name another store in CANOA_STORE"
        )
    return revision == HEAD


def upgrade(connection: Connection) -> None:
    """Inside the caller's transaction, which he commits."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "canoa.store:migrations")
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
