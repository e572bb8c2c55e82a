"""How far tasks are, as workers tell it: shown at once, written down now and then."""

from __future__ import annotations

import asyncio
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from canoa.recorder.times import now_ms
from canoa.store.port import Progress
from canoa.vocabulary import NodeId, TaskId

if TYPE_CHECKING:
    from datetime import datetime

    from canoa.recorder.grouping import GroupWriter
    from canoa.wire.event import Event

WRITE_EVERY_S: Final = 0.5
"""Of many reports only the last within this time is written: progress is looked at, not accounted for."""


class ProgressWriter:
    def __init__(self, writer: GroupWriter) -> None:
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._latest: dict[str, Event] = {}

    def on_event(self, event: Event) -> None:
        if not self._latest:
            self._loop.call_later(WRITE_EVERY_S, self._write)
        self._latest[event.task_id] = event

    def _write(self) -> None:
        latest, self._latest = self._latest, {}
        for event in latest.values():
            change = Progress(
                task_id=TaskId(event.task_id),
                at_ms=min(now_ms(), _as_ms(event.at)),  # by a clock that may be ahead
                fraction=event.progress,
                text=event.text,
                node_id=NodeId(event.node_id) if event.node_id else None,
                attempt=event.attempt or 1,
            )
            self._writer.post(change, _ignored)


def _as_ms(at: datetime) -> int:
    """Whoever says no time zone means UTC."""
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _ignored(_: Any) -> None:
    """The next report comes soon."""
