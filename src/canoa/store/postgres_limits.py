"""Leases, rates, slots, the outbox and retention on PostgreSQL. Each function runs inside one transaction.

What is decided about a name or a key is decided under a lock of that name, since there may be no row to lock yet.
"""

from __future__ import annotations

import math
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from canoa.execution import gcra
from canoa.store.packing import plain, unpack_publication
from canoa.store.port import Lease, OutboxRow
from canoa.store.retention import NEWEST
from canoa.store.retention import steps as retention_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.store.port import Retention
    from canoa.store.postgres_link import Connection

_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1, $2))"
_LEASES, _LIMITS, _SLOTS = 1, 2, 3  # so that equal names of different things are different locks

# Held for longer than anybody asks for: by a clock that has gone back since.
_TAKE_OUTBOX: Final = """
UPDATE outbox SET taken_until_ms = $1 + $3 WHERE seq IN (
  SELECT seq FROM outbox WHERE taken_until_ms <= $1 OR taken_until_ms > $1 + 2 * $3
  ORDER BY seq LIMIT $2 FOR UPDATE SKIP LOCKED
) RETURNING seq, publication
"""
_UPSERT_LEASE: Final = """
INSERT INTO leases (name, owner, epoch, expires_ms) VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, epoch = excluded.epoch, expires_ms = excluded.expires_ms
"""
_UPSERT_LIMIT: Final = """
INSERT INTO limits (key, next_ms) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET next_ms = excluded.next_ms
"""
_UPSERT_SLOT: Final = """
INSERT INTO slots (key, holder, expires_ms) VALUES ($1, $2, $3)
ON CONFLICT (key, holder) DO UPDATE SET expires_ms = excluded.expires_ms
"""
_COUNT_OTHERS: Final = """
SELECT count(*) FROM slots WHERE key = $1 AND holder <> $2 AND expires_ms > $3 AND expires_ms <= $4
"""
_FREE_SLOTS: Final = """
DELETE FROM slots USING unnest($1::text[], $2::text[]) AS gone (key, holder)
WHERE slots.key = gone.key AND slots.holder = gone.holder
"""


async def take_outbox(connection: Connection, *, now_ms: int, limit: int, for_ms: int) -> list[OutboxRow]:
    taken = await connection.fetch(_TAKE_OUTBOX, now_ms, limit, for_ms)
    rows = [OutboxRow(seq=seq, publication=unpack_publication(blob)) for seq, blob in taken]
    return sorted(rows, key=attrgetter("seq"))


async def lease(connection: Connection, name: str, owner: str, *, now_ms: int, for_ms: int) -> Lease | None:
    name, owner = plain(name), plain(owner)
    await connection.execute(_LOCK, name, _LEASES)
    found = await connection.fetchrow("SELECT owner, epoch, expires_ms FROM leases WHERE name = $1", name)
    holder, epoch, expires_ms = found or ("", 0, 0)
    if holder != owner:
        if now_ms < expires_ms <= now_ms + 2 * for_ms:
            return None
        epoch += 1
    taken = Lease(name=name, owner=owner, epoch=epoch, expires_ms=now_ms + for_ms)
    await connection.execute(_UPSERT_LEASE, taken.name, taken.owner, taken.epoch, taken.expires_ms)
    return taken


async def release(connection: Connection, name: str, owner: str) -> None:
    """The row stays: its epoch must go on growing."""
    statement = "UPDATE leases SET owner = '', expires_ms = 0 WHERE name = $1 AND owner = $2"
    await connection.execute(statement, plain(name), plain(owner))


async def reserve(
    connection: Connection, key: str, *, count: int, per_ms: float, burst: int, now_ms: int, within_ms: int
) -> int:
    key = plain(key)
    await connection.execute(_LOCK, key, _LIMITS)
    next_ms = await connection.fetchval("SELECT next_ms FROM limits WHERE key = $1", key)
    room = gcra.reserved(next_ms or 0.0, count=count, per_ms=per_ms, burst=burst, now_ms=now_ms, within_ms=within_ms)
    if room is None:
        return -1
    first_ms, next_ms = room
    await connection.execute(_UPSERT_LIMIT, key, next_ms)
    return math.ceil(first_ms)


async def take_slot(connection: Connection, key: str, holder: str, *, limit: int, now_ms: int, for_ms: int) -> bool:
    key, holder = plain(key), plain(holder)
    await connection.execute(_LOCK, key, _SLOTS)
    others = await connection.fetchval(_COUNT_OTHERS, key, holder, now_ms, now_ms + 2 * for_ms)
    if others >= limit:
        return False
    await connection.execute(_UPSERT_SLOT, key, holder, now_ms + for_ms)
    return True


async def free_slots(connection: Connection, holders: Sequence[tuple[str, str]]) -> None:
    keys, names = [plain(key) for key, _ in holders], [plain(holder) for _, holder in holders]
    await connection.execute(_FREE_SLOTS, keys, names)


async def forget(connection: Connection, retention: Retention, *, now_ms: int, limit: int) -> int:
    """Passes over rows that somebody is changing just now."""
    forgotten = 0
    newest_ms = await connection.fetchval(NEWEST)
    for step in retention_steps(retention, now_ms=now_ms, newest_ms=newest_ms):
        oldest = f"SELECT ctid FROM {step.table} WHERE {step.condition('$1')} {step.order} LIMIT $2"
        statement = f"{step.verb} WHERE ctid = ANY(ARRAY({oldest} FOR UPDATE SKIP LOCKED))"
        if step.parts is not None:
            gone = f"WITH gone AS ({statement} RETURNING id), "
            parts = f"parts AS (DELETE FROM {step.parts} USING gone WHERE task_id = gone.id) "
            statement = f"{gone}{parts}SELECT id FROM gone"
        status = await connection.execute(statement, step.before_ms, limit - forgotten)
        forgotten += int(status.rpartition(" ")[2])
    return forgotten
