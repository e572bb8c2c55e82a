"""The end of a kept task: written first, then told to those who wait, then acknowledged.

Killed in between, the next recorder gets the same result again, sees that it is known, and tells them once more.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from canoa.broker.port import Publication
from canoa.errors import CanoaError, DeliveryUnknown, Undecodable, WrongUse
from canoa.logs import get_logger
from canoa.recorder import reading
from canoa.recorder.times import as_time, now_ms
from canoa.wire.event import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.port import Broker, Delivery, PublishOutcome
    from canoa.recorder.events import Events
    from canoa.recorder.grouping import GroupWriter
    from canoa.recorder.metrics import RecorderStats
    from canoa.store.port import Answer, End, Ended

log = get_logger(__name__)

REPEAT_AFTER_S: Final = 1.0
"""Between tries to write what the store could not take: it is full or away, and asking faster does not change that."""


class Ending:
    def __init__(self, broker: Broker, writer: GroupWriter, events: Events, stats: RecorderStats) -> None:
        self._broker = broker
        self._writer = writer
        self._events = events
        self._stats = stats
        self._loop = asyncio.get_running_loop()

    def on_delivery(self, delivery: Delivery) -> None:
        """A worker's result."""
        try:
            change = reading.end(delivery.message, now_ms())
        except Undecodable as exc:
            log.warning("result_refused", reason=str(exc))
            delivery.settle()
            return
        self._write(delivery, change)

    async def end(self, change: End) -> bool:
        """Ended by somebody else than a worker. True: it had not ended before."""
        ended: Ended = await self._writer.apply(change)
        if ended.is_first:
            self._count(change)
            self._tell(change, ended.reply_to, _nothing_more)
        return ended.is_first

    def _write(self, delivery: Delivery, change: End, *, is_again: bool = False) -> None:
        """`is_again`: it may have been written before, and nobody was told."""
        if not delivery.is_settled:  # its link is gone: another recorder has it
            is_again = is_again or delivery.redelivered
            self._writer.post(change, partial(self._on_answer, delivery, change, is_again))

    def _on_answer(self, delivery: Delivery, change: End, is_again: bool, answer: Answer | CanoaError) -> None:
        if isinstance(answer, WrongUse):  # no store can keep it, however often it is asked
            log.error("result_refused", message_id=delivery.message.message_id, reason=str(answer))
            delivery.settle()
            return
        if isinstance(answer, CanoaError):
            self._stats.not_written(answer)
            self._loop.call_later(REPEAT_AFTER_S, partial(self._write, delivery, change, is_again=True))
            return
        self._stats.written()
        ended: Ended = answer  # type: ignore[assignment]
        if ended.is_first:
            self._count(change)
        else:
            self._stats.duplicates += 1
        acknowledge = partial(_settle, delivery)
        if ended.reply_to and (ended.is_first or is_again):
            self._tell(change, ended.reply_to, acknowledge)
        else:
            acknowledge()

    def _count(self, change: End) -> None:
        self._stats.recorded += 1
        self._events.tell(
            Event(
                kind="ended",
                task_id=change.task_id,
                action=change.action,
                at=as_time(change.ended_ms),
                outcome=change.outcome.value,
                text=change.error,
            )
        )

    def _tell(self, change: End, queues: tuple[str, ...], then: Callable[[], None]) -> None:
        """Not mandatory: a caller that is gone can ask again by the task's id."""
        missing = len(queues)

        def on_outcome(publication: Publication, outcome: PublishOutcome) -> None:
            nonlocal missing
            if isinstance(outcome, DeliveryUnknown):
                self._broker.post(publication, partial(on_outcome, publication))
                return
            missing -= 1
            if not missing:
                then()

        for queue in queues:
            told = Publication(message=change.result, key=queue, mandatory=False)
            self._broker.post(told, partial(on_outcome, told))


def _settle(delivery: Delivery) -> None:
    delivery.settle()


def _nothing_more() -> None:
    pass
