"""Plans by name, nodes and their health on PostgreSQL. Each function runs inside one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canoa.execution.step_records import encode_plan, plan_id
from canoa.store.catalogue_rows import CATALOGUE, IDENTITY, breaker_key, new_identity, node_values, noted, unwritten
from canoa.store.packing import plain
from canoa.store.postgres_batch import arrays, columns_of
from canoa.store.routed_port import HealthNoted, NodesPut
from canoa.store.routed_reads import breaker_row, node_row
from canoa.store.schema import breakers, nodes, plans
from canoa.vocabulary import NodeId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from canoa.execution.health import BreakerSettings
    from canoa.execution.plan import Plan
    from canoa.store.postgres_link import Connection
    from canoa.store.routed_port import HealthNote, NodeRow

UPSERT_PLANS: Final = f"""
INSERT INTO plans (id, used_ms, doc) SELECT * FROM {arrays(plans, ["id", "used_ms", "doc"])}
ON CONFLICT (id) DO UPDATE SET used_ms = excluded.used_ms
"""
_PUT_NAME: Final = """
INSERT INTO plan_names (name, plan, put_ms) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET plan = excluded.plan, put_ms = excluded.put_ms
WHERE plan_names.plan <> excluded.plan
"""
# The row stays locked until the commit: so versions are seen in their order, and none is skipped.
_COUNT: Final = """
INSERT INTO counters (name, value) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET value = counters.value + excluded.value RETURNING value
"""
_NODE: Final = [column.name for column in nodes.c]
_PUT_NODES: Final = f"""
INSERT INTO nodes ({", ".join(_NODE)}) SELECT * FROM {arrays(nodes, _NODE)}
ON CONFLICT (node_id) DO UPDATE SET version = excluded.version, seen_ms = excluded.seen_ms, doc = excluded.doc
"""
_SELECT_NODES: Final = "SELECT node_id, version, seen_ms, doc FROM nodes WHERE node_id = ANY($1::text[])"
_TOUCH_NODES: Final = """
UPDATE nodes SET seen_ms = new.seen_ms FROM (
  SELECT * FROM unnest($1::text[], $2::bigint[]) AS seen (node_id, seen_ms) ORDER BY node_id
) AS new WHERE nodes.node_id = new.node_id
"""
_BREAKER: Final = [column.name for column in breakers.c]
_PUT_BREAKERS: Final = f"""
INSERT INTO breakers ({", ".join(_BREAKER)}) SELECT * FROM {arrays(breakers, _BREAKER)}
ON CONFLICT (node_id, action) DO UPDATE SET failures = excluded.failures,
  down_until_ms = excluded.down_until_ms, trial_ms = excluded.trial_ms, changed_ms = excluded.changed_ms
"""
_IS_ONE_OF: Final = "(node_id, action) IN (SELECT * FROM unnest($1::text[], $2::text[]))"
_SELECT_BREAKERS: Final = f"SELECT {', '.join(_BREAKER)} FROM breakers WHERE {_IS_ONE_OF}"
_DELETE_BREAKERS: Final = f"DELETE FROM breakers WHERE {_IS_ONE_OF}"
# One at a time: there may be no row to lock yet, and health changes rarely.
_LOCK_BREAKERS: Final = "LOCK TABLE breakers IN SHARE ROW EXCLUSIVE MODE"


_DROP_NODES: Final = """
DELETE FROM nodes USING unnest($1::text[], $2::bigint[]) AS known (node_id, version)
WHERE nodes.node_id = known.node_id AND nodes.version <= known.version RETURNING nodes.node_id
"""


async def identity(connection: Connection) -> int:
    await connection.execute(
        "INSERT INTO counters (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING", *new_identity()
    )
    found: int = await connection.fetchval("SELECT value FROM counters WHERE name = $1", IDENTITY)
    return found


async def put_plan(connection: Connection, plan: Plan, *, now_ms: int) -> bool:
    doc = encode_plan(plan)
    id_, name = plan_id(doc), plain(plan.name)
    await connection.execute(UPSERT_PLANS, [id_], [now_ms], [doc])
    status = await connection.execute(_PUT_NAME, name, id_, now_ms)
    return status == "INSERT 0 1"


async def put_nodes(connection: Connection, nodes: Sequence[NodeRow]) -> NodesPut:
    version: int = await connection.fetchval(_COUNT, CATALOGUE, 0)  # nobody else may, from here on
    before = await _before(connection, nodes)
    new, found = unwritten(nodes, before)
    if new:
        # The last of each: a row cannot be written twice by one statement.
        rows = {node.node_id: node_values(node, number) for number, node in enumerate(new, start=version + 1)}
        await connection.execute(_PUT_NODES, *columns_of(sorted(rows.values())))
        version = await connection.fetchval(_COUNT, CATALOGUE, len(new))
    return NodesPut(version, before, found)


async def _before(connection: Connection, nodes: Sequence[NodeRow]) -> dict[NodeId, NodeRow]:
    """Nobody else changes them now: whoever does has the counter's row."""
    ids = {plain(node.node_id): node.node_id for node in nodes}
    found = await connection.fetch(_SELECT_NODES, list(ids))
    return {ids[row[0]]: node_row(row) for row in found}


async def touch_nodes(connection: Connection, seen_ms: Mapping[NodeId, int]) -> None:
    ids = [plain(node_id) for node_id in seen_ms]
    await connection.execute(_TOUCH_NODES, ids, list(seen_ms.values()))


async def forget_nodes(connection: Connection, *, seen_before_ms: int) -> list[NodeId]:
    gone = await connection.fetch("DELETE FROM nodes WHERE seen_ms < $1 RETURNING node_id", seen_before_ms)
    ids = sorted(node_id for (node_id,) in gone)
    await connection.execute("DELETE FROM breakers WHERE node_id = ANY($1::text[])", ids)
    return [NodeId(node_id) for node_id in ids]


async def drop_nodes(connection: Connection, *, versions: Mapping[NodeId, int]) -> list[NodeId]:
    gone = await connection.fetch(_DROP_NODES, *columns_of(list(versions.items())))
    ids = sorted(node_id for (node_id,) in gone)
    await connection.execute("DELETE FROM breakers WHERE node_id = ANY($1::text[])", ids)
    return [NodeId(node_id) for node_id in ids]


async def note_health(connection: Connection, notes: Sequence[HealthNote], *, settings: BreakerSettings) -> HealthNoted:
    if not notes:
        return HealthNoted([], {})
    await connection.execute(_LOCK_BREAKERS)
    keys = {breaker_key(note): None for note in notes}
    found = map(breaker_row, await connection.fetch(_SELECT_BREAKERS, *columns_of(keys)))
    before = {(row.node_id, row.action): row for row in found}
    changed = noted({(row.node_id, row.action): row for row in before.values()}, notes, settings)
    kept = [
        (plain(row.node_id), row.action, row.failures, row.down_until_ms, row.trial_ms, row.changed_ms)
        for row in changed
        if row.failures
    ]
    closed = [(plain(row.node_id), row.action) for row in changed if not row.failures]
    if kept:
        await connection.execute(_PUT_BREAKERS, *columns_of(kept))
    if closed:
        await connection.execute(_DELETE_BREAKERS, *columns_of(closed))
    return HealthNoted(changed, before)
