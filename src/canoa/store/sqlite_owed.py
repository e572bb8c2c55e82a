"""What moves left to be sent, on SQLite: bills for messages, and who takes over those that nobody holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canoa.execution.step_records import SENT
from canoa.store.packing import unpack_texts
from canoa.store.routed_debts import Taking, bill_of
from canoa.store.schema import owed
from canoa.store.sqlite_batch import inserting, updating

if TYPE_CHECKING:
    import sqlite3

    from canoa.store.routed_debts import Bill, Debts, Free

_OWED: Final = ["number", "taken_until_ms", "keys", "publications"]
INSERT_OWED: Final = inserting("INSERT", "owed", _OWED)
DELETE_OWED: Final = "DELETE FROM owed WHERE number = ?"
_UPDATE_OWED: Final = updating(owed, ["number"], _OWED[2:])  # what another program has deleted stays so
_SELECT_OWED: Final = f"SELECT {', '.join(_OWED)} FROM owed WHERE number = ?"
FREE_OWED: Final = """
SELECT number, taken_until_ms FROM owed WHERE taken_until_ms <= ?
UNION ALL
SELECT number, taken_until_ms FROM owed WHERE taken_until_ms > ?
ORDER BY taken_until_ms, number LIMIT ?
"""  # with OR it would read the whole table
_STEP_OUT: Final = "SELECT state, attempt, send FROM steps WHERE task_id = ? AND step = ?"
_IS_OPEN: Final = "SELECT 1 FROM tasks WHERE id = ? AND standing IN ('waiting', 'running')"


def unsent(connection: sqlite3.Connection, debts: Debts) -> set[str]:
    """Keys of all that is owed and not in those books."""
    known = debts.rows()
    rows = connection.execute("SELECT number, keys FROM owed")
    return {each for number, keys in rows if number not in known for each in unpack_texts(keys)}


def are_there(connection: sqlite3.Connection, free: Free) -> bool:
    """Bills that nobody holds."""
    return connection.execute(FREE_OWED, (*free, 1)).fetchone() is not None


def take_owed(connection: sqlite3.Connection, debts: Debts, *, now_ms: int, limit: int, for_ms: int) -> Taking:
    """To be settled once it is committed."""
    taking = Taking(limit, debts, now_ms=now_ms, for_ms=for_ms)
    connection.executemany(DELETE_OWED, [(number,) for number in taking.spent])
    connection.executemany(_UPDATE_OWED, debts.shrunk())
    free = connection.execute(FREE_OWED, (*taking.free, limit)).fetchall()
    for number, _ in free:
        if taking.is_full:
            break
        bill = bill_of(*connection.execute(_SELECT_OWED, (number,)).fetchone())
        taking.add(bill, _are_out(connection, bill))
    taking.close()
    connection.executemany(DELETE_OWED, [(number,) for number in taking.emptied])
    connection.executemany(_UPDATE_OWED, [bill.row() for bill in taking.rests])
    connection.executemany(INSERT_OWED, [bill.row() for bill in taking.bills])
    return taking


def _are_out(connection: sqlite3.Connection, bill: Bill) -> dict[str, bool]:
    return {key: _is_out(connection, *request) for key, request in bill.attempts().items()}


def _is_out(connection: sqlite3.Connection, task_id: str, step: int, attempt: int, send: int) -> bool:
    """Also a first one without a row: see `routed_unwritten.py`."""
    found = connection.execute(_STEP_OUT, (task_id, step)).fetchone()
    if found is not None:
        return bool(found == (SENT, attempt, send))
    return send == 1 and connection.execute(_IS_OPEN, (task_id,)).fetchone() is not None
