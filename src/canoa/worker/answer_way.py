"""The way by which a node's answers travel: a small need of those who answer, and the way over the worker's broker.

Answers are messages as published, whatever the way; another one (HTTP, MQTT) keeps the same promise.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from canoa.broker import topology
from canoa.broker.port import Publication
from canoa.errors import WrongUse

if TYPE_CHECKING:
    from collections.abc import Callable

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


_port: type[AnswerWay] = BrokerWay
