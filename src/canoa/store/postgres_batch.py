"""A batch of changes on PostgreSQL: lock and load the rows it touches, let the ledger decide, write what came out.

Rows that exist are locked in the order of their ids; rows that do not cannot be, so whoever finds that another program
inserted one of them meanwhile starts again. Whole columns travel as arrays: one statement for many rows.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from msgspec.structs import astuple

from canoa.store.ledger import Ledger, LetterRecord, TaskRecord, needs_of
from canoa.store.postgres_link import MetAnother
from canoa.store.schema import letters, tasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from canoa.store.ledger import Needs
    from canoa.store.port import Answer, Change
    from canoa.store.postgres_link import Connection

TASK: Final = [column.name for column in tasks.c]
SMALL: Final = TASK[:-2]  # all but `message` and `result`
CHANGING: Final = ["id", *(name for name in SMALL if name not in ("id", "action", "submitted_ms", "plan"))]
_LETTER: Final = [column.name for column in letters.c]
_BLOBS: Final[dict[tuple[bool, bool], list[str]]] = {
    (False, False): [],
    (False, True): ["result"],
    (True, False): ["message"],
    (True, True): ["message", "result"],
}


def arrays(table: sa.Table, columns: Sequence[str], **more: str) -> str:
    """`unnest($1::text[], …) AS new (id, …)`: rows made of one array per column. `more`: columns that the table does
    not have, with their types; they come last."""
    kinds = {sa.Text: "text", sa.BigInteger: "bigint", sa.Double: "double precision", sa.LargeBinary: "bytea"}
    types = {name: kinds[type(table.c[name].type)] for name in columns} | more
    given = (f"${at}::{kind}[]" for at, kind in enumerate(types.values(), start=1))
    return f"unnest({', '.join(given)}) AS new ({', '.join(types)})"


def inserting(table: sa.Table, columns: Sequence[str]) -> str:
    names = ", ".join(columns)
    return f"INSERT INTO {table.name} ({names}) SELECT * FROM {arrays(table, columns)} ON CONFLICT DO NOTHING"


def updating(table: sa.Table, key: Sequence[str], columns: Sequence[str]) -> str:
    """`columns`: with those of the key."""
    cells = ", ".join(f"{name} = new.{name}" for name in columns if name not in key)
    is_it = " AND ".join(f"old.{name} = new.{name}" for name in key)
    return f"UPDATE {table.name} AS old SET {cells} FROM {arrays(table, columns)} WHERE {is_it}"


# In the order of `TaskRecord`'s fields.
SELECT_TASKS: Final = (
    f"SELECT {', '.join(SMALL)}, CASE WHEN id = ANY($2::text[]) THEN message END, NULL, message IS NOT NULL "
    "FROM tasks WHERE id = ANY($1::text[]) ORDER BY id FOR NO KEY UPDATE"
)
_SELECT_LETTERS: Final = (
    f"SELECT {', '.join(_LETTER)} FROM letters WHERE task_id = ANY($1::text[]) ORDER BY task_id FOR NO KEY UPDATE"
)
INSERT_TASKS: Final = inserting(tasks, TASK)
_UPDATE_TASKS: Final = {which: updating(tasks, ["id"], [*CHANGING, *blobs]) for which, blobs in _BLOBS.items()}
_INSERT_LETTERS: Final = inserting(letters, _LETTER)
_UPDATE_LETTERS: Final = updating(letters, ["task_id"], _LETTER)
_INSERT_OUTBOX: Final = (
    "INSERT INTO outbox (task_id, taken_until_ms, publication) "
    "SELECT task_id, 0, publication FROM unnest($1::text[], $2::bytea[]) "
    "WITH ORDINALITY AS new (task_id, publication, at) ORDER BY at"
)
_DELETE_OUTBOX: Final = "DELETE FROM outbox WHERE seq = ANY($1::bigint[])"


async def apply(connection: Connection, changes: Sequence[Change]) -> list[Answer]:
    ledger = await _load(connection, needs_of(changes))
    answers = ledger.take(changes)
    await _write_tasks(connection, ledger)
    await _write_letters(connection, ledger)
    if ledger.sent:  # first: a number from before this batch, whoever made it up
        await connection.execute(_DELETE_OUTBOX, ledger.sent)
    if ledger.outbox:
        await connection.execute(_INSERT_OUTBOX, *columns_of(ledger.outbox))
    return answers


async def _load(connection: Connection, needs: Needs) -> Ledger:
    found = await connection.fetch(SELECT_TASKS, list(needs.tasks), list(needs.messages)) if needs.tasks else []
    dead = await connection.fetch(_SELECT_LETTERS, list(needs.letters)) if needs.letters else []
    return Ledger((TaskRecord(*row) for row in found), (LetterRecord(*row) for row in dead))


async def _write_tasks(connection: Connection, ledger: Ledger) -> None:
    new = sorted(ledger.new_tasks, key=attrgetter("id"))  # all in one order, so that no two wait for each other
    await insert(connection, INSERT_TASKS, [astuple(task)[: len(TASK)] for task in new])
    for (with_message, with_result), update in _UPDATE_TASKS.items():
        updated = ledger.updated_tasks(with_message=with_message, with_result=with_result)
        if updated:
            columns = [*CHANGING, *_BLOBS[with_message, with_result]]
            await connection.execute(update, *([getattr(task, name) for task in updated] for name in columns))


async def _write_letters(connection: Connection, ledger: Ledger) -> None:
    new = sorted(ledger.new_letters, key=attrgetter("task_id"))
    await insert(connection, _INSERT_LETTERS, [astuple(letter) for letter in new])
    changed = [astuple(letter) for letter in ledger.changed_letters]
    if changed:
        await connection.execute(_UPDATE_LETTERS, *columns_of(changed))


async def insert(connection: Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    if not rows:
        return
    status = await connection.execute(statement, *columns_of(rows))
    if status != f"INSERT 0 {len(rows)}":
        raise MetAnother


def columns_of(rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]
