"""What stands in a store's tables, asked from outside, whichever database it is."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import asyncpg

SQLITE = "sqlite:///"


async def first_value(store_url: str, statement: str) -> object:
    """Of the first row, if there is one."""
    if store_url.startswith(SQLITE):
        with closing(sqlite3.connect(store_url.removeprefix(SQLITE))) as file, file:
            row = file.execute(statement).fetchone()
        return row[0] if row else None
    connection = await asyncpg.connect(store_url)
    try:
        found: object = await connection.fetchval(statement)
    finally:
        await connection.close()
    return found
