"""As many rows as come, whatever sizes the statements have."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from canoa.store.schema import steps, tasks
from canoa.store.sqlite_rows import MAX_STATEMENTS, SIZES, Lookup, Rows, cut, replacing

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNTS = [0, 1, 7, 8, 49, 50, 51, 200, 3 * 50 + 5 * 8 + 3]
NEW = Rows("pets", ["id", "name", "age"])
RENAMED = Rows("pets", ["id", "name", "age"], then=replacing(["id"], ["name"]))
KNOWN = Lookup("SELECT id, name FROM pets", "id")


@pytest.fixture
def pets() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE pets (id TEXT PRIMARY KEY, name TEXT, age INTEGER NOT NULL)")
        yield connection


def rows_of(pets: sqlite3.Connection) -> list[tuple[str, str, int]]:
    return pets.execute("SELECT id, name, age FROM pets ORDER BY rowid").fetchall()


def test_no_statement_has_more_values_than_this_sqlite_takes(pets: sqlite3.Connection) -> None:
    taken = pets.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)

    assert max(SIZES) * max(len(tasks.c), len(steps.c)) <= min(taken, 32_766)


@pytest.mark.parametrize("count", COUNTS)
def test_every_row_belongs_to_one_statement(count: int) -> None:
    cuts = list(cut(count))

    assert [row for at, size in cuts for row in range(at, at + size)] == list(range(count))
    assert {size for _, size in cuts} <= set(SIZES)


@pytest.mark.parametrize("count", COUNTS)
def test_all_rows_are_written_in_their_order(pets: sqlite3.Connection, count: int) -> None:
    rows = [(f"{number}", f"pet {number}", number) for number in range(count)]

    NEW.write(pets, rows)

    assert rows_of(pets) == rows


@pytest.mark.parametrize("count", COUNTS)
def test_rows_that_are_there_get_new_values_where_named(pets: sqlite3.Connection, count: int) -> None:
    NEW.write(pets, [(f"{number}", "old", number) for number in range(count)])

    RENAMED.write(pets, [(f"{number}", "new", -1) for number in range(count)])

    assert rows_of(pets) == [(f"{number}", "new", number) for number in range(count)]


@pytest.mark.parametrize("count", COUNTS)
def test_keys_find_the_rows_that_are_there(pets: sqlite3.Connection, count: int) -> None:
    NEW.write(pets, [(f"{number}", f"pet {number}", number) for number in range(count)])

    found = KNOWN.rows(pets, [f"{number}" for number in range(2 * count)])

    assert sorted(found) == sorted((f"{number}", f"pet {number}") for number in range(count))


@pytest.mark.parametrize("count", COUNTS)
def test_what_rows_do_not_have_is_nothing_and_what_they_had_goes(count: int) -> None:
    rows = Rows("notes", ["id", "text", "blob"], then=replacing(["id"], ["text", "blob"]))
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as notes:
        notes.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT, blob BLOB)")
        rows.write(notes, [(number, "old", b"old") for number in range(count)])
        rows.write(notes, [(number, None, b"new") for number in range(count)])
        with_blobs = notes.execute("SELECT * FROM notes ORDER BY id").fetchall()
        rows.write(notes, [(number, "some" if number % 3 else None, None) for number in range(count)])
        with_texts = notes.execute("SELECT * FROM notes ORDER BY id").fetchall()

    assert with_blobs == [(number, None, b"new") for number in range(count)]
    assert with_texts == [(number, "some" if number % 3 else None, None) for number in range(count)]


def test_there_are_never_more_statements_than_so_many() -> None:
    columns = [f"c{number}" for number in range(8)]
    rows = Rows("wide", ["id", *columns])
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as wide:
        wide.execute(f"CREATE TABLE wide (id INTEGER PRIMARY KEY, {', '.join(columns)})")
        for shape in range(2 ** len(columns)):
            values = [shape if shape >> place & 1 else None for place in range(len(columns))]
            rows.write(wide, [(8 * shape + number, *values) for number in range(8)])

        found = wide.execute(f"SELECT {', '.join(columns)} FROM wide ORDER BY id").fetchall()
    assert len(rows._statements) <= MAX_STATEMENTS + len(SIZES)
    assert found == [
        tuple(shape if shape >> place & 1 else None for place in range(8)) for shape in range(256) for _ in range(8)
    ]


def test_what_is_known_stays_lean_after_so_many_others() -> None:
    rows = Rows("pair", ["id", *"abcdefgh"])
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as pair:
        pair.execute("CREATE TABLE pair (id INTEGER, a, b, c, d, e, f, g, h)")
        for shape in range(256):
            rows.write(pair, [(0, *(shape >> place & 1 or None for place in range(8)))] * 8)
        asked: list[str] = []
        pair.set_trace_callback(asked.append)
        rows.write(pair, [(1, *[None] * 8)] * 8)

    assert "INSERT INTO pair (id) VALUES" in asked[0]
