"""Leases, rates, slots, the outbox and retention on SQLite. Each function runs inside one exclusive transaction."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from canoa.execution import gcra
from canoa.store.packing import unpack_publication
from canoa.store.port import Lease, OutboxRow
from canoa.store.retention import NEWEST
from canoa.store.retention import steps as retention_steps

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from canoa.store.port import Retention

# Held for longer than anybody asks for: by a clock that has gone back since.
_FREE_OUTBOX: Final = (
    "SELECT seq, publication FROM outbox WHERE taken_until_ms <= ? OR taken_until_ms > ? ORDER BY seq LIMIT ?"
)
_UPSERT_LEASE: Final = "INSERT OR REPLACE INTO leases (name, owner, epoch, expires_ms) VALUES (?, ?, ?, ?)"
_UPSERT_LIMIT: Final = "INSERT OR REPLACE INTO limits (key, next_ms) VALUES (?, ?)"
_UPSERT_SLOT: Final = "INSERT OR REPLACE INTO slots (key, holder, expires_ms) VALUES (?, ?, ?)"

_DELETE_EXPIRED_SLOTS: Final = "DELETE FROM slots WHERE key = ? AND holder <> ? AND (expires_ms <= ? OR expires_ms > ?)"


def take_outbox(connection: sqlite3.Connection, *, now_ms: int, limit: int, for_ms: int) -> list[OutboxRow]:
    free = connection.execute(_FREE_OUTBOX, (now_ms, now_ms + 2 * for_ms, limit)).fetchall()
    until_ms = now_ms + for_ms
    connection.executemany("UPDATE outbox SET taken_until_ms = ? WHERE seq = ?", [(until_ms, seq) for seq, _ in free])
    return [OutboxRow(seq=seq, publication=unpack_publication(blob)) for seq, blob in free]


def lease(connection: sqlite3.Connection, name: str, owner: str, *, now_ms: int, for_ms: int) -> Lease | None:
    found = connection.execute("SELECT owner, epoch, expires_ms FROM leases WHERE name = ?", (name,)).fetchone()
    holder, epoch, expires_ms = found or ("", 0, 0)
    if holder != owner:
        if now_ms < expires_ms <= now_ms + 2 * for_ms:
            return None
        epoch += 1
    taken = Lease(name=name, owner=owner, epoch=epoch, expires_ms=now_ms + for_ms)
    connection.execute(_UPSERT_LEASE, (taken.name, taken.owner, taken.epoch, taken.expires_ms))
    return taken


def release(connection: sqlite3.Connection, name: str, owner: str) -> None:
    """The row stays: its epoch must go on growing."""
    connection.execute("UPDATE leases SET owner = '', expires_ms = 0 WHERE name = ? AND owner = ?", (name, owner))


def reserve(
    connection: sqlite3.Connection, key: str, *, count: int, per_ms: float, burst: int, now_ms: int, within_ms: int
) -> int:
    found = connection.execute("SELECT next_ms FROM limits WHERE key = ?", (key,)).fetchone()
    room = gcra.reserved(
        found[0] if found else 0.0, count=count, per_ms=per_ms, burst=burst, now_ms=now_ms, within_ms=within_ms
    )
    if room is None:
        return -1
    first_ms, next_ms = room
    connection.execute(_UPSERT_LIMIT, (key, next_ms))
    return math.ceil(first_ms)


def take_slot(connection: sqlite3.Connection, key: str, holder: str, *, limit: int, now_ms: int, for_ms: int) -> bool:
    connection.execute(_DELETE_EXPIRED_SLOTS, (key, holder, now_ms, now_ms + 2 * for_ms))
    others = connection.execute("SELECT count(*) FROM slots WHERE key = ? AND holder <> ?", (key, holder)).fetchone()[0]
    if others >= limit:
        return False
    connection.execute(_UPSERT_SLOT, (key, holder, now_ms + for_ms))
    return True


def free_slots(connection: sqlite3.Connection, holders: Sequence[tuple[str, str]]) -> None:
    connection.executemany("DELETE FROM slots WHERE key = ? AND holder = ?", holders)


def forget(connection: sqlite3.Connection, retention: Retention, *, now_ms: int, limit: int) -> int:
    forgotten = 0
    (newest_ms,) = connection.execute(NEWEST).fetchone()
    for step in retention_steps(retention, now_ms=now_ms, newest_ms=newest_ms):
        oldest = f"SELECT {{}} FROM {step.table} WHERE {step.condition('?')} {step.order} LIMIT ?"
        values = (step.before_ms, limit - forgotten)
        if step.parts is not None:
            connection.execute(f"DELETE FROM {step.parts} WHERE task_id IN ({oldest.format('id')})", values)
        done = connection.execute(f"{step.verb} WHERE rowid IN ({oldest.format('rowid')})", values)
        forgotten += done.rowcount
    return forgotten
