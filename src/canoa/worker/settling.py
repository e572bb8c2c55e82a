"""How a delivery ends: first whatever must be sent (a result, a retry, a dead letter) is confirmed, then it is
acknowledged. Killed in between, the worker leaves a duplicate behind, never a hole.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from canoa.errors import DeliveryUnknown, Unroutable, WrongUse
from canoa.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.port import Broker, Delivery, Publication, PublishOutcome

log = get_logger(__name__)

REPEAT_AFTER_S: Final = 1.0
"""Between tries to send what the broker refused: its queue is full, and asking faster does not empty it."""


class Settler:
    """Counts what is in the worker's hands. `wait_empty` is awaited while draining."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._in_hand = 0
        self._empty = asyncio.Event()
        self._empty.set()

    def took(self) -> None:
        self._in_hand += 1
        if self._in_hand == 1:
            self._empty.clear()

    @property
    def in_hand(self) -> int:
        return self._in_hand

    async def wait_empty(self) -> None:
        await self._empty.wait()

    def done(self, delivery: Delivery) -> None:
        """Acknowledge; nothing else is owed."""
        delivery.settle()
        self.dropped()

    def dropped(self) -> None:
        """It is no longer ours: settled, or gone with its link."""
        self._in_hand -= 1
        if self._in_hand == 0:
            self._empty.set()

    def send_then_ack(
        self,
        publication: Publication,
        delivery: Delivery,
        *,
        if_unroutable: Callable[[], None] | None = None,
        if_unsendable: Callable[[str], None] | None = None,
    ) -> None:
        """`if_unroutable` decides instead where there is nobody to send it to, `if_unsendable` where the protocol
        cannot carry it: foreign headers and ours together may not fit."""
        then = partial(self.done, delivery)
        self.send(publication, delivery, then=then, if_unroutable=if_unroutable, if_unsendable=if_unsendable)

    def send(
        self,
        publication: Publication,
        delivery: Delivery,
        *,
        then: Callable[[], None],
        if_unroutable: Callable[[], None] | None,
        if_unsendable: Callable[[str], None] | None = None,
    ) -> None:
        """Keeps trying while the delivery is ours: should its link be gone, somebody else gets the task anyway."""
        heard = partial(self._on_outcome, publication, delivery, then, if_unroutable, if_unsendable)
        try:
            self._broker.post(publication, heard)
        except ValueError as exc:
            self._loop.call_soon(heard, WrongUse(str(exc)))

    def _on_outcome(
        self,
        publication: Publication,
        delivery: Delivery,
        then: Callable[[], None],
        if_unroutable: Callable[[], None] | None,
        if_unsendable: Callable[[str], None] | None,
        outcome: PublishOutcome,
    ) -> None:
        if outcome is None:
            then()
        elif delivery.is_settled:
            self.dropped()
        elif isinstance(outcome, Unroutable) and if_unroutable is not None:
            if_unroutable()
        elif type(outcome) is WrongUse and if_unsendable is not None:  # not one of those that a permission can mend
            if_unsendable(str(outcome))
        else:
            log.warning("message_not_taken", key=publication.key, reason=str(outcome))
            wait_s = 0.0 if isinstance(outcome, DeliveryUnknown) else REPEAT_AFTER_S
            again = partial(
                self.send, publication, delivery, then=then, if_unroutable=if_unroutable, if_unsendable=if_unsendable
            )
            self._loop.call_later(wait_s, again)
