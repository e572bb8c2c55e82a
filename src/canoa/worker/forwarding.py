"""Sends what waits in the outbox, the oldest first, as soon as the way is free; also what an earlier start left."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from canoa.errors import Unroutable
from canoa.logs import get_logger
from canoa.repeating import REPEAT_AFTER_S, is_lasting

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.port import PublishOutcome
    from canoa.worker.answer_way import AnswerWay
    from canoa.worker.outbox import Waiting
    from canoa.worker.outbox_writer import OutboxWriter

log = get_logger(__name__)

WINDOW: Final = 64
"""Answers on their way at once: hides the round trip, and holds little in memory."""

WINDOW_BYTES: Final = 1024 * 1024


class Forwarder:
    """`on_sent` hears that the way is free: something arrived."""

    def __init__(self, outbox: OutboxWriter, way: AnswerWay, *, on_sent: Callable[[], None]) -> None:
        self._outbox = outbox
        self._way = way
        self._on_sent = on_sent
        self._loop = asyncio.get_running_loop()
        self._held: set[int] = set()  # on their way, by us or by whoever put them there
        self._flying = 0  # by us
        self._is_looking = False
        self._pause: asyncio.TimerHandle | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """Send no more; what is on its way is still heard of."""
        self._is_stopped = True
        if self._pause is not None:
            self._pause.cancel()

    def hold(self, id: int) -> None:
        """Somebody else sends it right now."""
        self._held.add(id)

    def release(self, id: int) -> None:
        """It was not sent, and is ours again."""
        self._held.discard(id)
        self._wait()

    def sent(self, id: int) -> None:
        self._held.discard(id)
        self._outbox.sent(id)

    def wake(self) -> None:
        """Look for what waits, unless the way was found closed a moment ago."""
        if self._is_looking or self._is_stopped or self._pause is not None or self._flying > WINDOW // 2:
            return
        if self._outbox.is_usable and self._outbox.stats.messages:
            self._is_looking = True
            room = WINDOW - self._flying
            self._outbox.waiting(self._on_found, limit=room, max_bytes=WINDOW_BYTES, but=frozenset(self._held))

    def _on_found(self, found: list[Waiting]) -> None:
        self._is_looking = False
        if self._is_stopped:
            return
        if not found and self._outbox.stats.messages > len(self._held):
            self._wait()  # the disk did not say
        for each in found:
            if each.id not in self._held:
                self._held.add(each.id)
                self._flying += 1
                self._way.send(each.entry.message, partial(self._on_outcome, each))

    def _on_outcome(self, waiting: Waiting, outcome: PublishOutcome) -> None:
        self._flying -= 1
        if outcome is None or isinstance(outcome, Unroutable):
            if outcome is not None:
                log.warning("result_without_manager", request_id=waiting.entry.request_id, action=waiting.entry.action)
            self.sent(waiting.id)
            self._on_sent()
            self.wake()
        elif is_lasting(outcome):
            log.error("answer_unsendable", request_id=waiting.entry.request_id, reason=str(outcome))
            self._held.discard(waiting.id)
            self._outbox.drop(waiting.id)
            self.wake()
        else:
            self.release(waiting.id)

    def _wait(self) -> None:
        if self._pause is None and not self._is_stopped:
            self._pause = self._loop.call_later(REPEAT_AFTER_S, self._go_on)

    def _go_on(self) -> None:
        self._pause = None
        self.wake()
