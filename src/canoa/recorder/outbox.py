"""Publishes what a transaction left to be published, until the broker has it.

What no broker will ever take (its queue is gone, no message can carry it) ends as refused, among the dead letters.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from canoa.broker.posting import is_hopeless, post
from canoa.clock import now_ms
from canoa.errors import CanoaError
from canoa.execution.outcome import Outcome
from canoa.logs import get_logger
from canoa.recorder.ending import bad_end
from canoa.store.port import Sent
from canoa.vocabulary import ActionName, TaskId
from canoa.wire import result
from canoa.wire.letter import run_of

if TYPE_CHECKING:
    from canoa.broker.port import Broker, Publication, PublishOutcome
    from canoa.recorder.ending import Ending
    from canoa.store.grouping import GroupWriter
    from canoa.store.port import OutboxRow, Store

log = get_logger(__name__)

LOOK_EVERY_S: Final = 2.0
"""How soon a recorder finds what another one left behind."""

MARGIN_S: Final = 5.0

PAGE: Final = 500


class Outbox:
    """`publish_timeout_s`: the broker's. Others leave a row to the recorder that took it for longer than a publish may
    take: until there is a link, and then until the answer comes."""

    def __init__(
        self, broker: Broker, store: Store, writer: GroupWriter, *, ending: Ending, publish_timeout_s: float
    ) -> None:
        self._broker = broker
        self._store = store
        self._writer = writer
        self._ending = ending
        self._held_ms = round((2 * publish_timeout_s + MARGIN_S) * 1000)
        self._loop = asyncio.get_running_loop()
        self._kicked = asyncio.Event()

    def kick(self) -> None:
        """There is something new in it."""
        self._kicked.set()

    async def run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._kicked.wait()
            self._kicked.clear()
            try:
                while await self._publish_some() == PAGE:
                    pass
            except CanoaError as exc:
                log.warning("outbox_waits", reason=str(exc))

    async def clear(self) -> None:
        """Of what is published anyway: a broker that forgets gets everything unfinished at the start."""
        while rows := await self._taken():
            await self._store.apply([Sent(seq=row.seq) for row in rows])

    async def _publish_some(self) -> int:
        rows = await self._taken()
        outcomes = await asyncio.gather(*(self._published(row.publication) for row in rows))
        hopeless: list[tuple[OutboxRow, PublishOutcome]] = []
        for row, outcome in zip(rows, outcomes, strict=True):
            if outcome is None:
                self._writer.post(Sent(seq=row.seq), _ignored)
            elif is_hopeless(outcome):
                hopeless.append((row, outcome))
            else:
                log.warning("outbox_message_not_taken", key=row.publication.key, reason=str(outcome))
        for row, outcome in hopeless:
            await self._give_up(row, str(outcome))
        return len(rows)

    async def _taken(self) -> list[OutboxRow]:
        return await self._store.take_outbox(now_ms=now_ms(), limit=PAGE, for_ms=self._held_ms)

    def _published(self, publication: Publication) -> asyncio.Future[PublishOutcome]:
        outcome: asyncio.Future[PublishOutcome] = self._loop.create_future()
        post(self._broker, publication, partial(_resolve, outcome))
        return outcome

    async def _give_up(self, row: OutboxRow, why: str) -> None:
        """Killed in between, the next recorder finds the row, and that its task has ended."""
        message = row.publication.message
        task_id, action = TaskId(message.message_id or ""), ActionName(message.type or "")
        log.error("outbox_message_given_up", task_id=task_id, key=row.publication.key, reason=why)
        what = result.failure(why, attempts=0)
        await self._ending.end(bad_end(task_id, action, Outcome.REFUSED, what=what, run=run_of(message)))
        self._writer.post(Sent(seq=row.seq), _ignored)


def _resolve(outcome: asyncio.Future[PublishOutcome], told: PublishOutcome) -> None:
    if not outcome.done():
        outcome.set_result(told)


def _ignored(_: Any) -> None:
    """Should this not be written, it is published once more: harmless, by its id."""
