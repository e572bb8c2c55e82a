"""The end of a kept task: written first, then told to those who wait, then acknowledged.

Killed in between, the next recorder gets the same result again, sees that it is known, and tells them once more.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from canoa.broker.port import Publication
from canoa.broker.posting import post
from canoa.clock import as_time, now_ms
from canoa.errors import BrokerUnreachable, CanoaError, DeliveryUnknown, Undecodable
from canoa.logs import get_logger
from canoa.recorder import reading
from canoa.repeating import REPEAT_AFTER_S, is_lasting
from canoa.store.port import End
from canoa.wire import result
from canoa.wire.event import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.events import Events
    from canoa.broker.port import Broker, Delivery, Message, PublishOutcome
    from canoa.execution.outcome import Outcome
    from canoa.recorder.metrics import RecorderStats
    from canoa.store.grouping import GroupWriter
    from canoa.store.port import Answer, Ended, Store
    from canoa.vocabulary import ActionName, TaskId

log = get_logger(__name__)


def _nothing_more() -> None:
    pass


class Ending:
    """`refuse`: takes over a result that cannot be read or kept, with the reason."""

    def __init__(
        self,
        broker: Broker,
        store: Store,
        writer: GroupWriter,
        *,
        events: Events,
        stats: RecorderStats,
        refuse: Callable[[Delivery, str], None],
    ) -> None:
        self._broker = broker
        self._store = store
        self._writer = writer
        self._events = events
        self._stats = stats
        self._refuse = refuse
        self._loop = asyncio.get_running_loop()
        self._is_stopped = False

    def stop(self) -> None:
        """Who could not be told so far hears it from the next recorder."""
        self._is_stopped = True

    def on_delivery(self, delivery: Delivery) -> None:
        """A worker's result."""
        try:
            change = reading.end(delivery.message, now_ms())
        except Undecodable as exc:
            self._refuse(delivery, str(exc))
            return
        self._write(delivery, change, delivery.redelivered)

    async def end(self, change: End, then: Callable[[], None] = _nothing_more) -> bool:
        """Ended by somebody else than a worker. True: it had not ended before. `then` is called once all are told.

        Repeat it after an error: its own commit may have been the first, with nobody told.
        """
        ended: Ended = await self._writer.apply(change)
        if ended.is_first:
            self._count(change)
        answer = change.result if ended.is_first else await self._store.result(change.task_id)
        self.tell(answer, ended.reply_to, then)
        return ended.is_first

    def _write(self, delivery: Delivery, change: End, is_again: bool) -> None:
        if not delivery.is_settled:  # its link is gone: another recorder has it
            self._writer.post(change, partial(self._on_answer, delivery, change, is_again))

    def _on_answer(self, delivery: Delivery, change: End, is_again: bool, answer: Answer | CanoaError) -> None:
        if isinstance(answer, CanoaError):
            self._on_refused(delivery, change, answer)
            return
        self._stats.written()
        ended: Ended = answer  # type: ignore[assignment]
        if ended.is_first:
            self._count(change)
        else:
            self._stats.duplicates += 1
        acknowledge = partial(_settle, delivery)
        if ended.reply_to and (ended.is_first or is_again):  # written before, perhaps, but perhaps not told
            self.tell(change.result, ended.reply_to, acknowledge)
        else:
            acknowledge()

    def _on_refused(self, delivery: Delivery, change: End, error: CanoaError) -> None:
        if is_lasting(error):
            self._refuse(delivery, str(error))
            return
        self._stats.not_written(error)
        # The link may have broken behind the commit: next time it may be known, and still untold.
        self._loop.call_later(REPEAT_AFTER_S, self._write, delivery, change, True)

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

    def tell(self, answer: Message | None, queues: tuple[str, ...], then: Callable[[], None]) -> None:
        """Not mandatory: a caller that is gone can ask again by the task's id."""
        if answer is None or not queues:
            then()
            return
        telling = _Telling(len(queues), then)
        for queue in queues:
            self._post(Publication(message=answer, key=queue, mandatory=False), telling)

    def _post(self, told: Publication, telling: _Telling) -> None:
        post(self._broker, told, partial(self._on_told, told, telling))

    def _on_told(self, told: Publication, telling: _Telling, outcome: PublishOutcome) -> None:
        if isinstance(outcome, DeliveryUnknown):
            self._post(told, telling)
        elif isinstance(outcome, BrokerUnreachable) and not self._is_stopped:
            # Acknowledged now, over the other link, nobody would ever tell them.
            self._loop.call_later(REPEAT_AFTER_S, self._post, told, telling)
        else:
            if outcome is not None:
                log.warning("caller_not_told", task_id=told.message.correlation_id, reason=str(outcome))
            telling.on_one_told()


class _Telling:
    """Counts who has been told of one result. Not a closure that names itself: such a circle per task, with the result
    in it, would live until the garbage collector comes, and a recorder lets that come rarely."""

    __slots__ = ("_missing", "_then")

    def __init__(self, missing: int, then: Callable[[], None]) -> None:
        self._missing = missing
        self._then = then

    def on_one_told(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._then()


def bad_end(task_id: TaskId, action: ActionName, outcome: Outcome, *, what: result.Failure, run: int) -> End:
    """Of a task that ends here, not at a worker."""
    return End(
        task_id=task_id,
        action=action,
        outcome=outcome,
        result=result.failure_message(task_id, outcome, what),
        ended_ms=now_ms(),
        attempts=what.attempts,
        error=what.message,
        run=run,
    )


def _settle(delivery: Delivery) -> None:
    delivery.settle()
