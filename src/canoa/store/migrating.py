"""Bringing a store's schema up to date. The caller holds the lock and the transaction, and has looked whether there is
something to do: a program that finds its store up to date starts without Alembic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config

if TYPE_CHECKING:
    from sqlalchemy import Connection


def upgrade(connection: Connection) -> None:
    """Inside the caller's transaction, which he commits."""
    config = new_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def new_config() -> Config:
    """Of the revisions that we ship."""
    config = Config()
    config.set_main_option("script_location", "canoa.store:migrations")
    config.set_main_option("path_separator", "os")
    return config
