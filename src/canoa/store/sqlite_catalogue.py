"""Plans by name, nodes and their health on SQLite. Each function runs inside one exclusive transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canoa.execution.step_records import encode_plan, plan_id
from canoa.store.catalogue_rows import CATALOGUE, IDENTITY, breaker_key, new_identity, node_values, noted, unwritten
from canoa.store.packing import plain
from canoa.store.routed_port import HealthNoted, NodesPut
from canoa.store.routed_reads import breaker_row, node_row
from canoa.vocabulary import NodeId

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from canoa.execution.health import BreakerSettings
    from canoa.execution.plan import Plan
    from canoa.store.routed_port import HealthNote, NodeRow

UPSERT_PLAN: Final = (
    "INSERT INTO plans (id, used_ms, doc) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET used_ms = excluded.used_ms"
)
_PUT_NAME: Final = "INSERT OR REPLACE INTO plan_names (name, plan, put_ms) VALUES (?, ?, ?)"
_PUT_NODE: Final = "INSERT OR REPLACE INTO nodes (node_id, version, seen_ms, doc) VALUES (?, ?, ?, ?)"
_SELECT_NODE: Final = "SELECT node_id, version, seen_ms, doc FROM nodes WHERE node_id = ?"
_PUT_BREAKER: Final = (
    "INSERT OR REPLACE INTO breakers (node_id, action, failures, down_until_ms, trial_ms, changed_ms) "
    "VALUES (?, ?, ?, ?, ?, ?)"
)
_SELECT_BREAKER: Final = "SELECT * FROM breakers WHERE node_id = ? AND action = ?"
_DELETE_BREAKER: Final = "DELETE FROM breakers WHERE node_id = ? AND action = ?"


def identity(connection: sqlite3.Connection) -> int:
    connection.execute("INSERT INTO counters (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING", new_identity())
    found: int = connection.execute("SELECT value FROM counters WHERE name = ?", (IDENTITY,)).fetchone()[0]
    return found


def put_plan(connection: sqlite3.Connection, plan: Plan, *, now_ms: int) -> bool:
    doc = encode_plan(plan)
    id_, name = plan_id(doc), plain(plan.name)
    known = connection.execute("SELECT plan FROM plan_names WHERE name = ?", (name,)).fetchone()
    if known == (id_,):
        return False
    connection.execute(UPSERT_PLAN, (id_, now_ms, doc))
    connection.execute(_PUT_NAME, (name, id_, now_ms))
    return True


def put_nodes(connection: sqlite3.Connection, nodes: Sequence[NodeRow]) -> NodesPut:
    counted = connection.execute("SELECT value FROM counters WHERE name = ?", (CATALOGUE,)).fetchone()
    version: int = counted[0] if counted else 0
    before = {node.node_id: row for node in nodes if (row := _before(connection, node)) is not None}
    new, found = unwritten(nodes, before)
    if new:
        rows = [node_values(node, number) for number, node in enumerate(new, start=version + 1)]
        connection.executemany(_PUT_NODE, rows)
        version += len(new)
        connection.execute("INSERT OR REPLACE INTO counters (name, value) VALUES (?, ?)", (CATALOGUE, version))
    return NodesPut(version, before, found)


def _before(connection: sqlite3.Connection, node: NodeRow) -> NodeRow | None:
    found = connection.execute(_SELECT_NODE, (plain(node.node_id),)).fetchone()
    return None if found is None else node_row(found)


def touch_nodes(connection: sqlite3.Connection, seen_ms: Mapping[NodeId, int]) -> None:
    statement = "UPDATE nodes SET seen_ms = ? WHERE node_id = ?"
    connection.executemany(statement, [(at_ms, plain(node_id)) for node_id, at_ms in seen_ms.items()])


def forget_nodes(connection: sqlite3.Connection, *, seen_before_ms: int) -> list[NodeId]:
    gone = connection.execute("SELECT node_id FROM nodes WHERE seen_ms < ? ORDER BY node_id", (seen_before_ms,))
    ids = [node_id for (node_id,) in gone]
    for table in ("nodes", "breakers"):
        connection.executemany(f"DELETE FROM {table} WHERE node_id = ?", [(node_id,) for node_id in ids])
    return [NodeId(node_id) for node_id in ids]


def drop_nodes(connection: sqlite3.Connection, *, versions: Mapping[NodeId, int]) -> list[NodeId]:
    statement = "DELETE FROM nodes WHERE node_id = ? AND version <= ?"
    ids = sorted(each for each, version in versions.items() if connection.execute(statement, (each, version)).rowcount)
    connection.executemany("DELETE FROM breakers WHERE node_id = ?", [(node_id,) for node_id in ids])
    return ids


def note_health(
    connection: sqlite3.Connection, notes: Sequence[HealthNote], *, settings: BreakerSettings
) -> HealthNoted:
    keys = {breaker_key(note): None for note in notes}
    rows = {key: breaker_row(row) for key in keys for row in connection.execute(_SELECT_BREAKER, key)}
    changed = noted(rows, notes, settings)
    for row in changed:
        key = (plain(row.node_id), row.action)
        if row.failures:
            values = (*key, row.failures, row.down_until_ms, row.trial_ms, row.changed_ms)
            connection.execute(_PUT_BREAKER, values)
        else:
            connection.execute(_DELETE_BREAKER, key)
    return HealthNoted(changed, {(row.node_id, row.action): row for row in rows.values()})
