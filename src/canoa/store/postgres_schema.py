"""Bringing a PostgreSQL database's schema up to date: under a lock, so that of several programs one migrates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from canoa.store import migrating
from canoa.store.postgres_link import DRIVER_ERRORS, translated
from canoa.store.schema import REVISION_TABLE

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from canoa.store.postgres_link import PostgresLink

# Any number will do, as long as every version of Canoa uses the same: it spells "canoa".
_LOCK: Final = text("SELECT pg_advisory_xact_lock(426939246945)")
_HAS_REVISION: Final = f"SELECT to_regclass('{REVISION_TABLE}') IS NOT NULL"


async def bring_up_to_date(link: PostgresLink) -> None:
    if not migrating.is_current(await _revision(link), place=link.place):
        await _migrate(link)


async def _revision(link: PostgresLink) -> str | None:
    """Without the lock, and without what migrating needs: a program that finds it up to date starts at once."""
    ((is_there,),) = await link.fetch(_HAS_REVISION)
    found = await link.fetch(migrating.SELECT_REVISION) if is_there else []
    return found[0][0] if found else None


async def _migrate(link: PostgresLink) -> None:
    engine = create_async_engine("postgresql+asyncpg://", async_creator=link.connect, poolclass=NullPool)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(_migrate_alone, link.place)
    except DBAPIError as exc:
        cause = exc.orig.__cause__ if exc.orig is not None else None  # the driver's own, below SQLAlchemy's
        raise translated(cause or exc, link.place) from exc
    except DRIVER_ERRORS as exc:
        raise translated(exc, link.place) from exc


def _migrate_alone(connection: Connection, place: str) -> None:
    connection.execute(_LOCK)
    # Somebody else may have been faster while we waited.
    is_there = connection.scalar(text(_HAS_REVISION))
    revision = connection.scalar(text(migrating.SELECT_REVISION)) if is_there else None
    if not migrating.is_current(revision, place=place):
        migrating.upgrade(connection)
