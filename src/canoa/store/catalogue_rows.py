"""Rows of nodes and breakers as they are written, for both databases. Pure."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.execution import health
from canoa.store.packing import plain
from canoa.store.routed_port import BreakerRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from canoa.execution.health import BreakerSettings
    from canoa.store.routed_port import HealthNote, NodeRow
    from canoa.vocabulary import NodeId

CATALOGUE: Final = "catalogue"
"""The counter of the catalogue's versions."""

IDENTITY: Final = "identity"
"""Stands among the counters, and counts nothing: see `RoutedStore.identity`."""

_encode = msgspec.json.Encoder().encode


BreakerKey = tuple[str, str]


def new_identity() -> tuple[str, int]:
    """In the order of the columns of `counters`."""
    return IDENTITY, secrets.randbits(63)


def unwritten(nodes: Sequence[NodeRow], before: Mapping[NodeId, NodeRow]) -> tuple[list[NodeRow], list[NodeRow]]:
    """The rows to write, and those that need not be: as they stand there."""
    known = [(node, before.get(node.node_id)) for node in nodes]
    found = [row for node, row in known if row is not None and _is_written(node, row)]
    return [_keeping_token(node, row) for node, row in known if row is None or not _is_written(node, row)], found


def _keeping_token(node: NodeRow, before: NodeRow | None) -> NodeRow:
    """With the token that the same start of it has, by its row so far: managers that hear of it at once by different
    ways draw one each, and the node has been told the first."""
    if before is None or not before.token or before.instance != node.instance:
        return node
    return msgspec.structs.replace(node, token=before.token)


def _is_written(node: NodeRow, before: NodeRow) -> bool:
    """Another manager did, since the version that this one knew: both were told the same at once."""
    return before.version > node.version and _said(before) == _said(node)


def _said(node: NodeRow) -> NodeRow:
    return msgspec.structs.replace(node, token="", registered_ms=0, seen_ms=0, version=0)


def node_values(node: NodeRow, version: int) -> tuple[str, int, int, bytes]:
    """In the order of the columns of `nodes`."""
    return plain(node.node_id), version, node.seen_ms, _encode(node)


def breaker_key(note: HealthNote) -> BreakerKey:
    return plain(note.node_id), "" if note.is_about_node else plain(note.action)


def noted(
    rows: Mapping[BreakerKey, BreakerRow], notes: Sequence[HealthNote], settings: BreakerSettings
) -> list[BreakerRow]:
    """Those that differ afterwards. One without failures is not kept: it is as if nothing had ever failed."""
    now = dict(rows)
    for note in notes:
        key = breaker_key(note)
        change = health.after(now.get(key), note.sign, note.now_ms, settings)
        now[key] = BreakerRow(
            node_id=note.node_id,
            action=key[1],
            failures=change.failures,
            down_until_ms=change.down_until_ms,
            trial_ms=change.trial_ms,
            changed_ms=note.now_ms,
        )
    return [row for key, row in now.items() if _facts(row) != _facts(rows.get(key))]


def _facts(row: BreakerRow | None) -> tuple[int, int, int]:
    return (0, 0, 0) if row is None else (row.failures, row.down_until_ms, row.trial_ms)
