"""A store's tables in memory, new and empty: for tests that make very many of them."""

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
        connection.executescript(_statements())
        yield connection


@cache
def _statements() -> str:
    dialect = sa.create_engine("sqlite://").dialect
    return ";".join(str(CreateTable(table).compile(dialect=dialect)) for table in metadata.sorted_tables)
