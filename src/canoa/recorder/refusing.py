"""What a recorder cannot read or keep: its task ends as refused where one is named, whoever waits is told, and the
message becomes a dead letter with the reason, for a person to look at.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from canoa.broker import topology
from canoa.broker.port import Publication
from canoa.broker.posting import is_hopeless, post
from canoa.errors import WrongUse
from canoa.execution.outcome import Outcome
from canoa.logs import get_logger
from canoa.recorder import reading
from canoa.recorder.ending import bad_end
from canoa.repeating import REPEAT_AFTER_S, Errands, is_lasting
from canoa.store.port import State
from canoa.wire import result
from canoa.wire.letter import run_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.port import Broker, Delivery, Message, PublishOutcome
    from canoa.recorder.ending import Ending
    from canoa.store.port import End, Store
    from canoa.vocabulary import TaskId

log = get_logger(__name__)


class Refusals:
    def __init__(self, broker: Broker, store: Store, ending: Ending) -> None:
        self._broker = broker
        self._store = store
        self._ending = ending
        self._loop = asyncio.get_running_loop()
        self._errands = Errands()

    def stop(self) -> None:
        """What is not acknowledged so far goes to the next recorder."""
        self._errands.stop()

    def refuse_submit(self, delivery: Delivery, why: str) -> None:
        log.warning("submit_refused", message_id=delivery.message.message_id, reason=why)
        self._errands.start(partial(self._refuse_submit, delivery, why), "refuse_submit")

    def refuse_result(self, delivery: Delivery, why: str) -> None:
        log.warning("result_refused", task_id=delivery.message.correlation_id, reason=why)
        self._errands.start(partial(self._refuse_result, delivery, why), "refuse_result")

    async def _refuse_submit(self, delivery: Delivery, why: str) -> None:
        message = delivery.message
        task_id = reading.named_task(message.message_id)
        what = result.failure(f"the task cannot be kept: {why}", attempts=0)
        bury = partial(self._bury, delivery, topology.SUBMIT, what, task_id)
        if task_id is None:
            bury()
            return
        if await self._is_its_own(task_id, run_of(message)):
            action = reading.named_action(message.type)
            await self._end(bad_end(task_id, action, Outcome.REFUSED, what=what, run=run_of(message)), _nothing_more)
        caller = () if message.reply_to in (None, topology.RESULTS) else (message.reply_to or "",)
        self._ending.tell(result.failure_message(task_id, Outcome.REFUSED, what), caller, bury)

    async def _is_its_own(self, task_id: TaskId, run: int) -> bool:
        """Not a task that was accepted before: somebody else's bad message must not end that."""
        row = await self._store.task(task_id)
        return row is None or (row.state is not State.ENDED and row.run == run > 0)

    async def _refuse_result(self, delivery: Delivery, why: str) -> None:
        message = delivery.message
        task_id = reading.named_task(message.correlation_id) or reading.named_task(message.message_id)
        what = result.failure(f"it ended with an answer that cannot be read: {why}")
        bury = partial(self._bury, delivery, topology.RESULTS, what, task_id)
        if task_id is None:
            bury()
            return
        action = reading.named_action(message.headers.get(result.ACTION))
        await self._end(bad_end(task_id, action, Outcome.REFUSED, what=what, run=run_of(message)), bury)

    async def _end(self, change: End, then: Callable[[], None]) -> None:
        try:
            await self._ending.end(change, then)
        except WrongUse as exc:
            if not is_lasting(exc):
                raise
            log.error("task_not_ended", task_id=change.task_id, reason=str(exc))
            then()

    # --- Dead letters -------------------------------------------------------------------------------

    def _bury(self, delivery: Delivery, queue: str, what: result.Failure, task_id: TaskId | None) -> None:
        """Through the broker, as everybody does. Under its task's id: one letter for one task."""
        named = msgspec.structs.replace(delivery.message, message_id=task_id)
        letter = _letter(reading.with_id(named, queue), queue, what)
        self._send(delivery, Publication(message=letter, exchange=topology.DEAD, key=queue))

    def _send(self, delivery: Delivery, dead: Publication) -> None:
        if not delivery.is_settled:
            post(self._broker, dead, partial(self._on_sent, delivery, dead))

    def _on_sent(self, delivery: Delivery, dead: Publication, outcome: PublishOutcome) -> None:
        bare = _without_foreign_headers(dead)
        if outcome is None:
            delivery.settle()
        elif not is_hopeless(outcome):
            self._loop.call_later(REPEAT_AFTER_S, self._send, delivery, dead)
        elif bare != dead:
            self._send(delivery, bare)
        else:
            log.error("message_dropped", message_id=dead.message.message_id, reason=str(outcome))
            delivery.settle()


def _nothing_more() -> None:
    pass


def _letter(message: Message, queue: str, what: result.Failure) -> Message:
    return result.dead_letter(message, reason=Outcome.REFUSED, what=what, node="", origin=queue, now_s=time.time())


def _without_foreign_headers(dead: Publication) -> Publication:
    own = {name: value for name, value in dead.message.headers.items() if name in _OWN}
    return msgspec.structs.replace(dead, message=msgspec.structs.replace(dead.message, headers=own))


_OWN = frozenset({result.REASON, result.ERROR, result.NODE, result.ORIGIN, result.DEAD_SINCE})
