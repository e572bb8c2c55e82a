"""Every recorder hears how far a task is; one of them writes it down."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.contract.store.words import accepted, row

from canoa.clock import now_ms
from canoa.recorder.progress import ProgressWriter
from canoa.store.grouping import GroupWriter
from canoa.store.port import Progress
from canoa.store.sqlite import SqliteStore
from canoa.wire.event import Event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from canoa.store.port import Answer, Change


class CountingStore(SqliteStore):
    reports = 0

    async def apply(self, changes: Sequence[Change]) -> list[Answer]:
        self.reports += sum(isinstance(change, Progress) for change in changes)
        return await super().apply(changes)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[CountingStore]:
    store = CountingStore(tmp_path / "canoa.db")
    await store.open()
    await accepted(store, "a")
    yield store
    await store.aclose()


async def reported(store: CountingStore, recorder: ProgressWriter, writer: GroupWriter, fraction: float) -> None:
    at = datetime.now(UTC) + timedelta(days=1)  # by a worker whose clock is ahead
    recorder.on_event(Event(kind="progress", task_id="a", action="shop.resize", at=at, progress=fraction))
    await recorder.write()
    await writer.aclose()


async def test_of_several_recorders_one_writes_a_report_down(store: CountingStore) -> None:
    writer = GroupWriter(store)
    first, second = ProgressWriter(writer, store, "first"), ProgressWriter(writer, store, "second")

    for recorder in (first, second):
        await reported(store, recorder, writer, 0.5)

    assert store.reports == 1
    assert (await row(store, "a")).progress == 0.5


async def test_when_that_one_stops_the_next_takes_over_at_once(store: CountingStore) -> None:
    writer = GroupWriter(store)
    first, second = ProgressWriter(writer, store, "first"), ProgressWriter(writer, store, "second")
    await reported(store, first, writer, 0.5)

    await first.stop()
    await reported(store, second, writer, 0.75)

    assert (await row(store, "a")).progress == 0.75


async def test_no_attempt_started_in_the_future(store: CountingStore) -> None:
    writer = GroupWriter(store)

    await reported(store, ProgressWriter(writer, store, "first"), writer, 0.5)

    started_ms = (await row(store, "a")).started_ms
    assert started_ms is not None
    assert started_ms <= now_ms()
