"""Bringing a SQLite file's schema up to date: under its write lock, so that of several programs one migrates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from canoa.store import migrating
from canoa.store.schema import REVISION_TABLE
from canoa.store.sqlite_link import connect

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

_HAS_REVISION: Final = f"SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{REVISION_TABLE}'"


def bring_up_to_date(connection: sqlite3.Connection, path: Path) -> None:
    if not migrating.is_current(_revision(connection), place=str(path)):
        _migrate(path)


def _revision(connection: sqlite3.Connection) -> str | None:
    if connection.execute(_HAS_REVISION).fetchone() is None:
        return None
    found = connection.execute(migrating.SELECT_REVISION).fetchone()
    return None if found is None else str(found[0])


def _migrate(path: Path) -> None:
    raw = connect(path)
    engine = create_engine("sqlite://", creator=lambda: raw, poolclass=NullPool)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            # Somebody else may have been faster while we waited for the lock.
            if not migrating.is_current(_revision(raw), place=str(path)):
                migrating.upgrade(connection)
            connection.commit()
    except DBAPIError as exc:
        raise (exc.orig or exc) from exc  # for whoever translates SQLite's own errors
