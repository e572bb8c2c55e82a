"""A delivery that came by no queue: over HTTP, or a link of MQTT. Whoever brought it hears when it is settled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canoa.broker.port import Delivery, Message, Settlement

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.errors import CanoaError


class DirectDelivery:
    """`on_settled` is called once, from inside `settle`. `error`: what was wrong with it, where that was found out."""

    __slots__ = ("_is_settled", "_on_settled", "error", "key", "message")

    exchange = ""
    redelivered = False

    def __init__(self, message: Message, on_settled: Callable[[Settlement], None], *, key: str = "") -> None:
        self.message = message
        self.key = key
        self.error: CanoaError | None = None
        self._on_settled = on_settled
        self._is_settled = False

    @property
    def is_settled(self) -> bool:
        return self._is_settled

    def settle(self, how: Settlement = Settlement.ACK) -> bool:
        if self._is_settled:
            return False
        self._is_settled = True
        self._on_settled(how)
        return True

    def abandon(self) -> None:
        """Whoever brought it waits no longer: it comes again, or not at all."""
        self._is_settled = True


_port: type[Delivery] = DirectDelivery
