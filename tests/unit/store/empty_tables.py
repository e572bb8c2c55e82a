"""A store's tables in memory, new and empty: for tests that make very many of them. Copied, since making them takes a
millisecond."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from functools import cache
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.schema import CreateTable

from canoa.store.schema import metadata

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def empty_tables() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(_content())
        yield connection


@cache
def _content() -> bytes:
    dialect = sa.create_engine("sqlite://").dialect
    statements = ";".join(str(CreateTable(table).compile(dialect=dialect)) for table in metadata.sorted_tables)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(statements)
        return connection.serialize()
