"""What a worker needs of a way to managers that is no broker of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol

from canoa.broker.bundled import PartDelivery
from canoa.broker.direct import DirectDelivery
from canoa.broker.port import Settlement

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from canoa.broker.port import Delivery, Message, OnDelivery, PublishOutcome
    from canoa.worker.ears import Ear

AGAIN_AFTER_S: Final = 1.0


class Uplink(Protocol):
    """Brings messages to a node and its answers to managers. Safe for one event loop."""

    way: str  # `MQTT` or `HTTP`

    @property
    def is_open(self) -> bool:
        """For answers, as `AnswerWay` has it."""

    @property
    def is_reachable(self) -> bool:
        """Messages can come, as far as the node can tell."""

    @property
    def is_registered(self) -> bool:
        """A manager has acknowledged the node by this way."""

    @property
    def ear(self) -> Ear | None:
        """By what the node can try whether it hears by this way; None: by nothing."""

    async def start(self, on_message: OnDelivery) -> None:
        """Return once messages can come."""

    def duties(self) -> list[Coroutine[Any, Any, None]]:
        """What runs as long as the node does; one that raises makes it deaf."""

    def renew(self) -> None:
        """Say anew what the node is: something of that has changed."""

    def send(self, message: Message, on_outcome: Callable[[PublishOutcome], None]) -> None:
        """An answer, as `AnswerWay` has it."""

    async def leave(self) -> None:
        """Say so, and take nothing more that is new."""

    async def aclose(self) -> None: ...


def brought_by_uplink(delivery: Delivery) -> UplinkDelivery | None:
    """What it came in, be that itself or a bundle; None: it came through the broker."""
    origin = delivery.whole.delivery if isinstance(delivery, PartDelivery) else delivery
    return origin if isinstance(origin, UplinkDelivery) else None


class UplinkDelivery(DirectDelivery):
    """What came by an uplink. There is no queue that it could go back to: what must come again is kept here."""

    __slots__ = ("_on_message", "uplink")

    def __init__(
        self,
        message: Message,
        uplink: Uplink,
        on_message: OnDelivery,
        on_settled: Callable[[Settlement], None] = lambda _: None,
    ) -> None:
        super().__init__(message, on_settled)
        self.uplink = uplink
        self._on_message = on_message

    def come(self) -> None:
        self._on_message(self)

    def again(self, message: Message) -> UplinkDelivery:
        """That message, by itself. Whoever brought this one hears nothing of it."""
        return UplinkDelivery(message, self.uplink, self._on_message)

    def settle(self, how: Settlement = Settlement.ACK) -> bool:
        if how is not Settlement.REQUEUE or self.is_settled:
            return super().settle(how)
        self.abandon()
        successor = UplinkDelivery(self.message, self.uplink, self._on_message, self._on_settled)
        asyncio.get_running_loop().call_later(AGAIN_AFTER_S, successor.come)
        return True
