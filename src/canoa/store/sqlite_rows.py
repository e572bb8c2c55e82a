"""Many rows with few statements: SQLite writes all rows of one without the interpreter's lock, so that the event loop
goes on meanwhile. Row by row, it would have to get that lock back after every one.
"""

from __future__ import annotations

import sqlite3
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SIZES: Final = (400, 50, 8, 1) if sqlite3.sqlite_version_info >= (3, 32) else (50, 8, 1)
"""Rows in one statement, of which there is one per size: more sizes fit better, and must each be prepared once. With 17
columns the largest stays below the 32,766 values that SQLite takes in one, and took 999 of until 3.32."""


def cut(length: int) -> Iterator[tuple[int, int]]:
    """Where each statement begins, and how many rows it has, of so many."""
    at = 0
    for size in SIZES:
        while length - at >= size:
            yield at, size
            at += size


class Rows:
    """`INSERT INTO table (columns) VALUES …`, and `then`, for as many rows as come."""

    def __init__(self, table: str, columns: Sequence[str], *, then: str = "") -> None:
        row = f"({', '.join('?' * len(columns))})"
        head = f"INSERT INTO {table} ({', '.join(columns)}) VALUES"
        self._statements = {size: f"{head} {', '.join([row] * size)} {then}" for size in SIZES}

    def write(self, connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        for at, size in cut(len(rows)):
            connection.execute(self._statements[size], tuple(chain.from_iterable(rows[at : at + size])))


class Lookup:
    """`select` and `WHERE key IN (…)`, for as many keys as come."""

    def __init__(self, select: str, key: str) -> None:
        self._statements = {size: f"{select} WHERE {key} IN ({', '.join('?' * size)})" for size in SIZES}

    def rows(self, connection: sqlite3.Connection, keys: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Of those that are there, in any order."""
        found: list[tuple[Any, ...]] = []
        for at, size in cut(len(keys)):
            found += connection.execute(self._statements[size], keys[at : at + size]).fetchall()
        return found


def replacing(key: Sequence[str], columns: Sequence[str]) -> str:
    """What `Rows` does with a row that is there already: these columns get new values. One that an index has is named
    only where it changes: naming it is writing that index."""
    return f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in columns)}"
