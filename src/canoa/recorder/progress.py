"""How far tasks are, as workers tell it: shown at once, written down now and then."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from canoa.clock import now_ms
from canoa.errors import CanoaError
from canoa.store.port import Progress
from canoa.vocabulary import NodeId, TaskId

if TYPE_CHECKING:
    from datetime import datetime

    from canoa.store.grouping import GroupWriter
    from canoa.store.port import Store
    from canoa.wire.event import Event

WRITE_EVERY_S: Final = 0.5
"""Of many reports only the last within this time is written: progress is looked at, not accounted for."""


LEASE: Final = "progress"
LEASE_S: Final = 10.0
"""Every recorder hears every report, one writes. Shorter replaces a killed one sooner, and asks the store more."""

ASK_EVERY_S: Final = LEASE_S / 3


class ProgressWriter:
    """`owner`: which recorder this is."""

    def __init__(self, writer: GroupWriter, store: Store, owner: str) -> None:
        self._writer = writer
        self._store = store
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._latest: dict[str, Event] = {}
        self._is_ours = False
        self._ask_at_s = 0.0  # by the loop's clock
        self._writing: asyncio.Task[None] | None = None
        self._is_stopped = False

    def on_event(self, event: Event) -> None:
        if not self._latest:
            self._loop.call_later(WRITE_EVERY_S, self._start)
        self._latest[event.task_id] = event

    async def stop(self) -> None:
        """Another recorder may write at once."""
        self._is_stopped = True
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if self._is_ours:
            with suppress(CanoaError):
                await self._store.release(LEASE, self._owner)

    def _start(self) -> None:
        if not self._is_stopped:
            self._writing = self._loop.create_task(self.write(), name="recorder.progress")

    async def write(self) -> None:
        """What was reported since the last time, if that is up to this recorder."""
        latest, self._latest = self._latest, {}
        if await self._may_write():
            for event in latest.values():
                self._writer.post(_change(event), _ignored)

    async def _may_write(self) -> bool:
        if self._loop.time() < self._ask_at_s:
            return self._is_ours
        try:
            lease = await self._store.lease(LEASE, self._owner, now_ms=now_ms(), for_ms=round(LEASE_S * 1000))
        except CanoaError:  # a store that is away takes no progress either
            return False
        self._is_ours, self._ask_at_s = lease is not None, self._loop.time() + ASK_EVERY_S
        return self._is_ours


def _change(event: Event) -> Progress:
    return Progress(
        task_id=TaskId(event.task_id),
        at_ms=min(now_ms(), _as_ms(event.at)),  # by a clock that may be ahead
        fraction=event.progress,
        text=event.text,
        node_id=NodeId(event.node_id) if event.node_id else None,
        attempt=event.attempt or 1,
    )


def _as_ms(at: datetime) -> int:
    """Whoever says no time zone means UTC."""
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _ignored(_: Any) -> None:
    """The next report comes soon."""
