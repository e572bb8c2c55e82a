"""Tells at an MQTT broker of its own how tasks ended, to clients that know no other.

From a queue that all managers with such a link share, so each end is told by one of them, whichever manager it came
from; what was not confirmed goes back there. Nothing of this is in the way of tasks.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from canoa.broker import topology
from canoa.broker.port import Settlement
from canoa.errors import BrokerUnreachable, DeliveryUnknown, Unroutable
from canoa.logs import get_logger
from canoa.repeating import REPEAT_AFTER_S
from canoa.wire import sapparchi

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.port import Delivery, Message, PublishOutcome

log = get_logger(__name__)

PREFETCH: Final = 50
"""Work for devices waits behind them on the same link: enough to hide a round trip, and no more."""


class Mqtt(Protocol):
    def tell_confirmed(self, name: str, message: Message, on_outcome: Callable[[PublishOutcome], None]) -> None:
        """Under this name, to whoever listens. `Unroutable`: nobody does."""


class MqttFinals:
    def __init__(self, mqtt: Mqtt) -> None:
        self._mqtt = mqtt
        self._loop = asyncio.get_running_loop()
        self._is_refused = False  # and has been said to be

    def on_delivery(self, delivery: Delivery) -> None:
        if sapparchi.BY_MQTT in delivery.message.headers:
            delivery.settle()  # perhaps from us, by the plugin of our own broker: it would go round for ever
        else:
            self._mqtt.tell_confirmed(topology.FINAL_RESULTS, delivery.message, partial(self._on_outcome, delivery))

    def _on_outcome(self, delivery: Delivery, outcome: PublishOutcome) -> None:
        if isinstance(outcome, BrokerUnreachable | DeliveryUnknown):
            self._loop.call_later(REPEAT_AFTER_S, delivery.settle, Settlement.REQUEUE)  # another may have a link
            return
        delivery.settle()
        is_refused = outcome is not None and not isinstance(outcome, Unroutable)
        if is_refused and not self._is_refused:
            log.warning("final_result_not_told", way="MQTT", reason=str(outcome))
        self._is_refused = is_refused
