"""Bringing a PostgreSQL database's schema up to date: under a lock, so that of several programs one migrates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from canoa.store import revision
from canoa.store.postgres_link import DRIVER_ERRORS, translated

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from canoa.store.postgres_link import PostgresLink

# Any number will do, as long as every version of Canoa uses the same: it spells "canoa".
_LOCK: Final = text("SELECT pg_advisory_xact_lock(426939246945)")


async def bring_up_to_date(link: PostgresLink) -> None:
    if not revision.is_current(await _found(link), place=link.place):
        await _migrate(link)


async def _found(link: PostgresLink) -> str | None:
    """Without the lock, and without what migrating needs: a program that finds it up to date starts at once."""
    ((is_there,),) = await link.fetch(revision.SELECT_TABLE_ON_POSTGRES)
    found = await link.fetch(revision.SELECT) if is_there else []
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
    from canoa.store import migrating

    connection.execute(_LOCK)
    # Somebody else may have been faster while we waited.
    is_there = connection.scalar(text(revision.SELECT_TABLE_ON_POSTGRES))
    found = connection.scalar(text(revision.SELECT)) if is_there else None
    if not revision.is_current(found, place=place):
        migrating.bring(connection, found)
