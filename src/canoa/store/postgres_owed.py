"""What moves left to be sent, on PostgreSQL: bills for messages, and who takes over those that nobody holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canoa.store.packing import unpack_texts
from canoa.store.postgres_batch import columns_of, inserting, updating
from canoa.store.postgres_writes import Writes
from canoa.store.routed_debts import Taking, bill_of
from canoa.store.schema import owed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.store.postgres_link import Connection
    from canoa.store.routed_debts import Bill, Debts, Row

_OWED: Final = ["number", "taken_until_ms", "keys", "publications"]
INSERT_OWED: Final = inserting(owed, _OWED)
DELETE_OWED: Final = "DELETE FROM owed WHERE number = ANY($1::bigint[])"
_UPDATE_OWED: Final = updating(owed, ["number"], _OWED)
_SELECT_OWED: Final = f"SELECT {', '.join(_OWED)} FROM owed WHERE number = $1"
_LOCK_FREE: Final = """
SELECT number FROM owed WHERE taken_until_ms <= $1 OR taken_until_ms > $2
ORDER BY taken_until_ms, number LIMIT $3 FOR UPDATE SKIP LOCKED
"""
_ARE_OUT: Final = """
SELECT wanted.key FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[])
  AS wanted (key, task_id, step, attempt, send)
JOIN steps USING (task_id, step, attempt, send) WHERE state = 'sent'
"""


async def unsent(connection: Connection, debts: Debts) -> set[str]:
    """Keys of all that is owed and not in those books."""
    known = debts.rows()
    rows = await connection.fetch("SELECT number, keys FROM owed")
    return {each for number, keys in rows if number not in known for each in unpack_texts(keys)}


async def take_owed(connection: Connection, debts: Debts, *, now_ms: int, limit: int, for_ms: int) -> Taking:
    """To be settled once it is committed."""
    taking = Taking(limit, debts, now_ms=now_ms, for_ms=for_ms)
    await _write(connection, deleted=taking.spent, updated=debts.shrunk(), new=[])
    free = await connection.fetch(_LOCK_FREE, *taking.free, limit)
    for (number,) in free:
        if taking.is_full:
            break
        (row,) = await connection.fetch(_SELECT_OWED, number)
        bill = bill_of(*row)
        taking.add(bill, await _are_out(connection, bill))
    taking.close()
    rests = [bill.row() for bill in taking.rests]
    await _write(connection, deleted=taking.emptied, updated=rests, new=[bill.row() for bill in taking.bills])
    return taking


async def _are_out(connection: Connection, bill: Bill) -> dict[str, bool]:
    attempts = bill.attempts()
    if not attempts:
        return {}
    rows = [(key, *request) for key, request in attempts.items()]
    out = {key for (key,) in await connection.fetch(_ARE_OUT, *columns_of(rows))}
    return {key: key in out for key in attempts}


async def _write(connection: Connection, *, deleted: Sequence[int], updated: Sequence[Row], new: Sequence[Row]) -> None:
    writes = Writes()
    writes.add(DELETE_OWED, [sorted(deleted)] if deleted else [])
    writes.add(_UPDATE_OWED, columns_of(sorted(updated)))
    writes.add(INSERT_OWED, columns_of(new), is_all_or_none=True)
    await writes.send(connection)
