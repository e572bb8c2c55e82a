"""How long a recorder keeps others from publishing what it publishes itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canoa.broker.memory import MemoryBroker
from canoa.recorder.service import recording
from canoa.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from canoa.store.port import OutboxRow


async def test_a_row_stays_with_its_recorder_for_as_long_as_the_broker_may_try_to_send_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_ms: list[int] = []
    store, broker = SqliteStore(tmp_path / "canoa.db"), MemoryBroker()

    async def take_outbox(*, now_ms: int, limit: int, for_ms: int) -> list[OutboxRow]:
        held_ms.append(for_ms)
        return []

    monkeypatch.setattr(store, "take_outbox", take_outbox)
    await store.open()
    await broker.open()
    async with recording(broker, store, is_memory=True, publish_timeout_s=100):
        pass
    await broker.aclose()
    await store.aclose()

    assert held_ms
    assert min(held_ms) > 2 * 100_000  # until it is sent, and from then on until the answer comes
