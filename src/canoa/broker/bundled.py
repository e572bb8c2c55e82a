"""One delivery that is many: each part is settled by itself, and the delivery when all of them are.

What a bundle is on the wire is in `wire/bundle.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canoa.broker.port import ACK, Delivery, Message, Settlement
from canoa.wire import bundle

if TYPE_CHECKING:
    from collections.abc import Callable


def opened(delivery: Delivery, *, now_s: float, on_end: Callable[[Whole], None] | None = None) -> list[PartDelivery]:
    """The parts of a bundle, in order. `on_end` is called when the last of them is settled; never, if the link ends
    before. Raises `Undecodable` and `PayloadTooLarge`; the delivery is whole and unsettled then."""
    messages = bundle.parts(delivery.message)
    whole = Whole(delivery, len(messages), now_s=now_s, on_end=on_end)
    return [PartDelivery(whole, each) for each in messages]


class Whole:
    """What the parts of one bundle share. It does not know them: a circle would keep them in memory for longer."""

    __slots__ = ("_how", "_on_end", "delivery", "left", "opened_s")

    def __init__(self, delivery: Delivery, parts: int, *, now_s: float, on_end: Callable[[Whole], None] | None) -> None:
        self.delivery = delivery
        self.left = parts
        self.opened_s = now_s
        self._how = ACK
        self._on_end = on_end

    def settle_one(self, how: Settlement) -> None:
        """The broker knows nothing of parts: where one must come again, all of them do."""
        if how is not ACK:
            self._how = Settlement.REQUEUE
        self.left -= 1
        if self.left == 0:
            self.delivery.settle(self._how)
            if self._on_end is not None:
                self._on_end(self)


class PartDelivery:
    __slots__ = ("_is_settled", "message", "whole")

    def __init__(self, whole: Whole, message: Message) -> None:
        self.whole = whole
        self.message = message
        self._is_settled = False

    @property
    def exchange(self) -> str:
        return self.whole.delivery.exchange

    @property
    def key(self) -> str:
        return self.whole.delivery.key

    @property
    def redelivered(self) -> bool:
        return self.whole.delivery.redelivered

    @property
    def is_settled(self) -> bool:
        return self._is_settled or self.whole.delivery.is_settled

    def settle(self, how: Settlement = ACK) -> bool:
        if self._is_settled or self.whole.delivery.is_settled:
            return False
        self._is_settled = True
        self.whole.settle_one(how)
        return True


_delivery: type[Delivery] = PartDelivery
