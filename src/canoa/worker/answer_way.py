"""The ways by which a node's answers travel: over the worker's broker, or by an uplink (HTTP, MQTT).

Answers are messages as published, whatever the way.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from canoa.broker import topology
from canoa.broker.port import Publication
from canoa.errors import WrongUse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canoa.broker.port import Broker, Message, PublishOutcome


class AnswerWay(Protocol):
    def send(self, message: Message, on_outcome: Callable[[PublishOutcome], None]) -> None:
        """Send now, hear later: `on_outcome` is called exactly once, from the event loop, never from inside `send`.

        None: the managers' side has it, and keeps it as well as it keeps anything. `Unroutable`: nobody is there who
        wants answers. `WrongUse` itself: this way can never carry it. Everything else may pass: it is sent again, and
        whoever gets an answer twice takes the first.
        """


class BrokerWay:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()

    def send(self, message: Message, on_outcome: Callable[[PublishOutcome], None]) -> None:
        publication = Publication(message=message, exchange=topology.AMQ_TOPIC, key=topology.STEP_RESULTS)
        try:
            self._broker.post(publication, on_outcome)
        except ValueError as exc:
            self._loop.call_soon(on_outcome, WrongUse(str(exc)))


class AnyWay:
    """Over the worker's broker while there is a link, and over an uplink else, if there is one. `has_broker`: managers
    are on it; a worker that joins by uplinks alone has one of its own, where nobody listens."""

    def __init__(self, broker: Broker, uplinks: Sequence[AnswerWay] = (), *, has_broker: bool = True) -> None:
        self._broker = broker
        self._by_broker = BrokerWay(broker)
        self._uplinks = uplinks
        self._has_broker = has_broker

    @property
    def is_the_broker(self) -> bool:
        return not self._uplinks or (self._has_broker and self._broker.is_linked)

    def send(self, message: Message, on_outcome: Callable[[PublishOutcome], None]) -> None:
        if self.is_the_broker:
            self._by_broker.send(message, on_outcome)
        else:
            self._try(message, on_outcome, 0)

    def _try(self, message: Message, on_outcome: Callable[[PublishOutcome], None], nth: int) -> None:
        def on_sent(outcome: PublishOutcome) -> None:
            if outcome is None or nth + 1 >= len(self._uplinks):
                on_outcome(outcome)
            else:
                self._try(message, on_outcome, nth + 1)

        self._uplinks[nth].send(message, on_sent)


_broker: type[AnswerWay] = BrokerWay
_any: type[AnswerWay] = AnyWay
