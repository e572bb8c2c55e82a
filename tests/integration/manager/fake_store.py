"""Stands in until the store is there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from canoa.execution.health import BreakerSettings, after
from canoa.store.port import Lease
from canoa.store.routed_port import BreakerRow, HealthNote, NodeRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from canoa.vocabulary import NodeId


class FakeStore:
    def __init__(self) -> None:
        self.rows: dict[NodeId, NodeRow] = {}
        self.circuits: dict[tuple[NodeId, str], BreakerRow] = {}
        self.version = 0
        self.out: dict[NodeId, int] = {}
        self.leases: dict[str, Lease] = {}

    async def put_nodes(self, nodes: Sequence[NodeRow]) -> int:
        await asyncio.sleep(0.001)
        for row in nodes:
            self.version += 1
            self.rows[row.node_id] = msgspec.structs.replace(row, version=self.version)
        return self.version

    async def touch_nodes(self, seen_ms: Mapping[NodeId, int]) -> None:
        for node_id, at_ms in seen_ms.items():
            self.rows[node_id] = msgspec.structs.replace(self.rows[node_id], seen_ms=at_ms)

    async def nodes(self, *, since: int = 0) -> list[NodeRow]:
        await asyncio.sleep(0)
        return [row for row in self.rows.values() if row.version > since]

    async def forget_nodes(self, *, seen_before_ms: int) -> list[NodeId]:
        gone = [row.node_id for row in self.rows.values() if row.seen_ms < seen_before_ms]
        for node_id in gone:
            del self.rows[node_id]
        return gone

    async def note_health(self, notes: Sequence[HealthNote]) -> list[BreakerRow]:
        changed = {}
        for note in notes:
            key = (note.node_id, "" if note.is_about_node else note.action)
            was = self.circuits.get(key)
            now = after(was, note.sign, note.now_ms, BreakerSettings())
            row = BreakerRow(node_id=key[0], action=key[1], changed_ms=note.now_ms, **msgspec.structs.asdict(now))
            self.circuits[key] = changed[key] = row
        return list(changed.values())

    async def breakers(self) -> list[BreakerRow]:
        return list(self.circuits.values())

    async def queued_for(self) -> dict[NodeId, int]:
        return dict(self.out)

    async def lease(self, name: str, owner: str, *, now_ms: int, for_ms: int) -> Lease | None:
        held = self.leases.get(name)
        if held and held.owner != owner and held.expires_ms > now_ms:
            return None
        self.leases[name] = Lease(name=name, owner=owner, epoch=1, expires_ms=now_ms + for_ms)
        return self.leases[name]

    async def release(self, name: str, owner: str) -> None:
        self.leases.pop(name, None)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)
