"""Bringing a SQLite file's schema up to date: under its write lock, so that of several programs one migrates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from canoa.store import revision
from canoa.store.sqlite_link import connect

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path


def bring_up_to_date(connection: sqlite3.Connection, path: Path) -> None:
    if not revision.is_current(_found(connection), place=str(path)):
        _migrate(path)


def _found(connection: sqlite3.Connection) -> str | None:
    if connection.execute(revision.SELECT_TABLE_ON_SQLITE).fetchone() is None:
        return None
    found = connection.execute(revision.SELECT).fetchone()
    return None if found is None else str(found[0])


def _migrate(path: Path) -> None:
    from canoa.store import migrating

    raw = connect(path)
    engine = create_engine("sqlite://", creator=lambda: raw, poolclass=NullPool)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            # Somebody else may have been faster while we waited for the lock.
            found = _found(raw)
            if not revision.is_current(found, place=str(path)):
                migrating.bring(connection, found)
            connection.commit()
    except DBAPIError as exc:
        raise (exc.orig or exc) from exc  # for whoever translates SQLite's own errors
