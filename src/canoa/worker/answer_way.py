"""The ways by which a node's answers travel: over the worker's broker, or by an uplink (MQTT, HTTP).

Answers are messages as published, whatever the way.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Protocol

from canoa.broker import topology
from canoa.broker.port import Publication
from canoa.broker.posting import after_trouble
from canoa.errors import BrokerUnreachable, WrongUse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canoa.broker.port import Broker, Message, PublishOutcome


def _never() -> bool:
    return False


class AnswerWay(Protocol):
    @property
    def is_open(self) -> bool:
        """What is sent now leaves now, as far as anybody knows."""

    def send(self, message: Message, on_outcome: Callable[[PublishOutcome], None]) -> None:
        """Send now, hear later: `on_outcome` is called exactly once, from the event loop, never from inside `send`.

        None: the managers' side has it, and keeps it as well as it keeps anything. `Unroutable`: nobody is there who
        wants answers. `WrongUse` itself: this way can never carry it. Everything else may pass: it is sent again, and
        whoever gets an answer twice takes the first.
        """


class BrokerWay:
    """`is_roomy`: the broker brings more without an acknowledgement, so nobody waits for an answer's confirm, and being
    woken for each takes the time of those who do have work."""

    def __init__(self, broker: Broker, is_roomy: Callable[[], bool] = _never) -> None:
        self._broker = broker
        self._is_roomy = is_roomy
        self._loop = asyncio.get_running_loop()

    @property
    def is_open(self) -> bool:
        return self._broker.is_linked

    def send(self, message: Message, on_outcome: Callable[[PublishOutcome], None]) -> None:
        publication = Publication(message=message, exchange=topology.AMQ_TOPIC, key=topology.STEP_RESULTS)
        try:
            self._broker.post(publication, on_outcome, later=self._is_roomy())
        except ValueError as exc:
            self._loop.call_soon(on_outcome, WrongUse(str(exc)))


class HeardBrokerWay(BrokerWay):
    """The same, while `is_heard` says that a manager is there who will take it. For those who have other ways: a broker
    also takes what nobody comes for, where the managers' own link to it is cut."""

    def __init__(self, broker: Broker, is_heard: Callable[[], bool], is_roomy: Callable[[], bool] = _never) -> None:
        super().__init__(broker, is_roomy)
        self._is_heard = is_heard

    @property
    def is_open(self) -> bool:
        return super().is_open and self._is_heard()


class AnyWay:
    """`ways`: the preferred one first. What one does not take goes by the next that is open."""

    def __init__(self, ways: Sequence[AnswerWay]) -> None:
        self._ways = ways
        self._loop = asyncio.get_running_loop()
        self._is_closed = False

    def close(self) -> None:
        """Take nothing more: its ways are about to end."""
        self._is_closed = True

    @property
    def is_the_broker(self) -> bool:
        """By which a message would go now."""
        return isinstance(self._ways[0], BrokerWay) and (len(self._ways) == 1 or self._ways[0].is_open)

    @property
    def is_open(self) -> bool:
        return any(way.is_open for way in self._ways)

    def send(self, message: Message, on_outcome: Callable[[PublishOutcome], None]) -> None:
        if self._is_closed:
            self._loop.call_soon(on_outcome, BrokerUnreachable("this node has left"))
        elif len(self._ways) == 1:
            self._ways[0].send(message, on_outcome)
        elif ways := [way for way in self._ways if way.is_open]:
            self._try(message, on_outcome, ways, None)
        else:  # one that is closed might take it all the same, and lose it; a broker lets one wait for its link
            self._loop.call_soon(on_outcome, BrokerUnreachable("no way to a manager is open"))

    def _try(
        self,
        message: Message,
        on_outcome: Callable[[PublishOutcome], None],
        ways: Sequence[AnswerWay],
        trouble: PublishOutcome,
    ) -> None:
        ways[0].send(message, partial(self._on_sent, message, on_outcome, ways[1:], trouble))

    def _on_sent(
        self,
        message: Message,
        on_outcome: Callable[[PublishOutcome], None],
        left: Sequence[AnswerWay],
        trouble: PublishOutcome,
        outcome: PublishOutcome,
    ) -> None:
        told = after_trouble(trouble, outcome)
        if told is None or not left:
            on_outcome(told)
        else:
            self._try(message, on_outcome, left, told)


_broker: type[AnswerWay] = BrokerWay
_any: type[AnswerWay] = AnyWay
