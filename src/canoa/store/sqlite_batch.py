"""A batch of changes on SQLite: load the rows it touches, let the ledger decide, write what came out.

Runs inside a transaction that excludes other writers. Plain statements, many rows each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import astuple

from canoa.store.ledger import Ledger, LetterRecord, TaskRecord, needs_of
from canoa.store.schema import letters, tasks

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    import sqlalchemy as sa

    from canoa.store.ledger import Needs
    from canoa.store.port import Answer, Change

TASK: Final = [column.name for column in tasks.c]
SMALL: Final = TASK[:-2]  # all but `message` and `result`
CHANGING: Final = [name for name in SMALL if name not in ("id", "action", "submitted_ms", "plan")]
_LETTER: Final = [column.name for column in letters.c]


def _selecting(message: str) -> str:
    """In the order of `TaskRecord`'s fields."""
    return f"SELECT {', '.join(SMALL)}, {message}, NULL, message IS NOT NULL FROM tasks"


def updating(table: sa.Table, key: Sequence[str], columns: Sequence[str]) -> str:
    """By number: `?14` is the 14th column, whichever of those before it are left out."""
    numbers = {column.name: number for number, column in enumerate(table.c, start=1)}
    cells = ", ".join(f"{name} = ?{numbers[name]}" for name in columns)
    return f"UPDATE {table.name} SET {cells} WHERE {' AND '.join(f'{name} = ?{numbers[name]}' for name in key)}"


def inserting(verb: str, table: str, columns: Sequence[str]) -> str:
    return f"{verb} INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


SELECTING_TASKS: Final = _selecting("NULL")
_SELECT_TASK: Final = f"{SELECTING_TASKS} WHERE id = ?"
_SELECT_TASK_WITH_MESSAGE: Final = f"{_selecting('message')} WHERE id = ?"
_SELECT_LETTER: Final = f"SELECT {', '.join(_LETTER)} FROM letters WHERE task_id = ?"
_INSERT_TASK: Final = inserting("INSERT", "tasks", TASK)
_REPLACE_LETTER: Final = inserting("INSERT OR REPLACE", "letters", _LETTER)
_INSERT_OUTBOX: Final = "INSERT INTO outbox (task_id, taken_until_ms, publication) VALUES (?, 0, ?)"
_DELETE_OUTBOX: Final = "DELETE FROM outbox WHERE seq = ?"
_BLOBS: Final = {
    (False, False): [],
    (False, True): ["result"],
    (True, False): ["message"],
    (True, True): ["message", "result"],
}
_UPDATE_TASK: Final = {which: updating(tasks, ["id"], [*CHANGING, *blobs]) for which, blobs in _BLOBS.items()}


def apply(connection: sqlite3.Connection, changes: Sequence[Change]) -> list[Answer]:
    ledger = _load(connection, needs_of(changes))
    answers = ledger.take(changes)
    _write(connection, ledger)
    return answers


def _load(connection: sqlite3.Connection, needs: Needs) -> Ledger:
    found: list[TaskRecord] = []
    for task_id in needs.tasks:
        select = _SELECT_TASK_WITH_MESSAGE if task_id in needs.messages else _SELECT_TASK
        found += [TaskRecord(*row) for row in connection.execute(select, (task_id,))]
    dead = [LetterRecord(*row) for task_id in needs.letters for row in connection.execute(_SELECT_LETTER, (task_id,))]
    return Ledger(found, dead)


def _write(connection: sqlite3.Connection, ledger: Ledger) -> None:
    connection.executemany(_INSERT_TASK, [astuple(task)[: len(TASK)] for task in ledger.new_tasks])
    for (with_message, with_result), update in _UPDATE_TASK.items():
        # As many values as the highest number that the statement names.
        width = len(TASK) if with_result else len(SMALL) + with_message
        updated = ledger.updated_tasks(with_message=with_message, with_result=with_result)
        connection.executemany(update, [astuple(task)[:width] for task in updated])
    connection.executemany(_REPLACE_LETTER, [astuple(letter) for letter in ledger.letters.values()])
    # First what was sent: a number from before this batch, whoever made it up.
    connection.executemany(_DELETE_OUTBOX, [(seq,) for seq in ledger.sent])
    connection.executemany(_INSERT_OUTBOX, ledger.outbox)
