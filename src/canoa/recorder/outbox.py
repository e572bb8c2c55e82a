"""Publishes what a transaction left to be published, until the broker has it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from canoa.errors import CanoaError, WrongUse
from canoa.logs import get_logger
from canoa.recorder.times import now_ms
from canoa.store.port import Sent

if TYPE_CHECKING:
    from canoa.broker.port import Broker, Publication, PublishOutcome
    from canoa.recorder.grouping import GroupWriter
    from canoa.store.port import Store

log = get_logger(__name__)

LOOK_EVERY_S: Final = 2.0
"""How soon a recorder finds what another one left behind."""

HELD_MS: Final = 30_000
"""How long others leave a row to the recorder that took it. Longer than a publish may take."""

PAGE: Final = 500


class Outbox:
    def __init__(self, broker: Broker, store: Store, writer: GroupWriter) -> None:
        self._broker = broker
        self._store = store
        self._writer = writer
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
        while rows := await self._store.take_outbox(now_ms=now_ms(), limit=PAGE, for_ms=HELD_MS):
            await self._store.apply([Sent(seq=row.seq) for row in rows])

    async def _publish_some(self) -> int:
        rows = await self._store.take_outbox(now_ms=now_ms(), limit=PAGE, for_ms=HELD_MS)
        if not rows:
            return 0
        outcomes = await self._outcomes([row.publication for row in rows])
        for row, outcome in zip(rows, outcomes, strict=True):
            if outcome is None:
                self._writer.post(Sent(seq=row.seq), _ignored)
            else:
                log.warning("outbox_message_not_taken", key=row.publication.key, reason=str(outcome))
        return len(rows)

    async def _outcomes(self, publications: list[Publication]) -> list[PublishOutcome]:
        try:
            return await self._broker.publish_many(publications)
        except ValueError as exc:  # one of them cannot be sent: it must not hold up the others
            if len(publications) == 1:
                return [WrongUse(f"it cannot be sent: {exc}")]
            return [outcome for each in publications for outcome in await self._outcomes([each])]


def _ignored(_: Any) -> None:
    """Should this not be written, it is published once more: harmless, by its id."""
