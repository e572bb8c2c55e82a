"""From `ctx.progress(...)` to an event: a few per second and task, the last one always."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.wire.event import Event

if TYPE_CHECKING:
    from canoa.broker.port import Broker, PublishOutcome
    from canoa.context import Report
    from canoa.wire.task import Task

TELL_EVERY_S: Final = 0.2


class ProgressTeller:
    """Tells what a worker's actions report. Events are not confirmed to anybody: a lost one is followed by the next."""

    def __init__(self, broker: Broker, node_id: str) -> None:
        self._broker = broker
        self._node_id = node_id

    def of(self, known: Task) -> Report:
        """For one attempt; may be called from any thread."""
        return _Attempt(self, known).report

    def tell(self, known: Task, fraction: float | None, text: str) -> None:
        event = Event(
            kind="progress",
            task_id=known.told_id,
            action=known.action,
            at=datetime.now(UTC),
            progress=fraction,
            text=text or None,
            node_id=self._node_id,
            attempt=known.attempt,
        )
        message = Message(body=msgspec.json.encode([event]), persistent=False)
        key = topology.progress_key(known.told_id)
        self._broker.post(Publication(message=message, exchange=topology.EVENTS, key=key, mandatory=False), _ignored)


class _Attempt:
    """Only the event loop sends. A thread leaves its last word, and wakes the loop unless that is already coming."""

    __slots__ = ("_is_coming", "_known", "_last", "_loop", "_next_s", "_teller")

    def __init__(self, teller: ProgressTeller, known: Task) -> None:
        self._teller = teller
        self._known = known
        self._loop = asyncio.get_running_loop()
        self._last: tuple[float | None, str] = (None, "")
        self._next_s = 0.0
        self._is_coming = False

    def report(self, fraction: float | None, text: str) -> None:
        self._last = (fraction, text)
        if not self._is_coming:
            self._is_coming = True
            self._loop.call_soon_threadsafe(self._wait_for_turn)

    def _wait_for_turn(self) -> None:
        self._loop.call_later(max(0.0, self._next_s - self._loop.time()), self._send)

    def _send(self) -> None:
        self._is_coming = False
        self._next_s = self._loop.time() + TELL_EVERY_S
        self._teller.tell(self._known, *self._last)


def _ignored(_: PublishOutcome) -> None:
    """Nobody listening is fine."""
