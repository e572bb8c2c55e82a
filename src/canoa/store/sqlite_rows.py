"""Many rows with few statements: SQLite writes all rows of one without the interpreter's lock, so that the event loop
goes on meanwhile. Row by row, it would have to get that lock back after every one.
"""

from __future__ import annotations

import sqlite3
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SIZES: Final = (400, 50, 8, 1) if sqlite3.sqlite_version_info >= (3, 32) else (50, 8, 1)
"""Rows in one statement, of which there is one per size: more sizes fit better, and must each be prepared once. With 17
columns the largest stays below the 32,766 values that SQLite takes in one, and took 999 of until 3.32."""

MAX_STATEMENTS: Final = 16
"""Of one kind of rows: for each size, with all columns or with those that rows mostly have. Each may be prepared, which
takes memory."""


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
        self._table = table
        self._columns = tuple(columns)
        self._then = then
        self._statements: dict[tuple[int, tuple[str, ...]], str] = {}

    def write(self, connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        for at, size in cut(len(rows)):
            if size > 1:
                connection.execute(*self._lean(rows[at : at + size]))
            else:
                connection.execute(self._statement(1, self._columns), rows[at])

    def _lean(self, rows: Sequence[tuple[Any, ...]]) -> tuple[str, tuple[Any, ...]]:
        """Without columns in which no row has a value: unnamed, they get none. The driver looks for adapters of each
        `None` and each `bytes` that it is given, which takes as long as writing the row; a `bytearray` it takes as it
        is. With the interpreter's lock held, 400 rows of steps took 1.5 times as long."""
        columns = list(zip(*rows, strict=True))
        nothing = [column.count(None) for column in columns]
        names = tuple(name for name, count in zip(self._columns, nothing, strict=True) if count < len(rows))
        if len(self._statements) >= MAX_STATEMENTS and (len(rows), names) not in self._statements:
            names = self._columns
        kept: list[Iterable[Any]] = [
            map(bytearray, column) if not count and type(column[0]) is bytes else column
            for name, column, count in zip(self._columns, columns, nothing, strict=True)
            if name in names
        ]
        return self._statement(len(rows), names), tuple(chain.from_iterable(zip(*kept, strict=True)))

    def _statement(self, size: int, names: tuple[str, ...]) -> str:
        statement = self._statements.get((size, names))
        if statement is None:
            row = f"({', '.join('?' * len(names))})"
            head = f"INSERT INTO {self._table} ({', '.join(names)}) VALUES"
            statement = self._statements[size, names] = f"{head} {', '.join([row] * size)} {self._then}"
        return statement


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
