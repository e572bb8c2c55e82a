"""Requests to managers that go out together: as bundles, where every one hears its own outcome."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from canoa.broker import topology
from canoa.broker.port import Publication
from canoa.errors import CanoaError, WrongUse
from canoa.wire.bundle import MAX_PARTS, packed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canoa.broker.port import Broker, PublishOutcome

    OnOutcome: TypeAlias = Callable[[PublishOutcome], None]


class Requests:
    """The first that is posted in a turn of the event loop leaves at once, for a short way; what follows goes together
    at its end, in order. A bundle that is full does not wait for that: a manager works on it while the next is made."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._posted: list[tuple[Publication, OnOutcome]] = []
        self._are_for_later = True
        self._is_gathering = False  # until the end of this turn of the loop

    def post(self, publication: Publication, on_outcome: OnOutcome, *, later: bool = False) -> None:
        """As `Broker.post`; what the protocol cannot carry is an outcome, too (`WrongUse`)."""
        self._posted.append((publication, on_outcome))
        self._are_for_later = self._are_for_later and later
        if not self._is_gathering:
            self._is_gathering = True
            self._loop.call_soon(self._end_turn)
            self._post_all()
        elif len(self._posted) >= MAX_PARTS:
            self._post_all()

    def _end_turn(self) -> None:
        self._is_gathering = False
        if self._posted:
            self._post_all()

    def _post_all(self) -> None:
        posted, self._posted = self._posted, []
        later, self._are_for_later = self._are_for_later, True
        at = 0
        for bundle, count in bundles([publication for publication, _ in posted]):
            self._post(bundle, [on_outcome for _, on_outcome in posted[at : at + count]], later=later)
            at += count

    def _post(self, bundle: Publication, hearing: list[OnOutcome], *, later: bool) -> None:
        tell = hearing[0] if len(hearing) == 1 else partial(_tell_all, hearing)
        try:
            self._broker.post(bundle, tell, later=later)
        except CanoaError as exc:
            self._loop.call_soon(tell, exc)  # not within `post`
        except ValueError as exc:
            self._loop.call_soon(tell, WrongUse(f"it cannot be sent: {exc}"))


async def publish_all(broker: Broker, publications: Sequence[Publication]) -> list[PublishOutcome]:
    """As `Broker.publish_many`, with what goes to the managers in bundles."""
    if not publications or publications[0].key != topology.TASK_REQUESTS:
        return await broker.publish_many(publications)
    together = bundles(publications)
    outcomes = await broker.publish_many([bundle for bundle, _ in together])
    return [outcome for outcome, (_, count) in zip(outcomes, together, strict=True) for _ in range(count)]


def bundles(requests: Sequence[Publication]) -> list[tuple[Publication, int]]:
    """As few as can carry them, in order, each with how many it carries."""
    return [
        (Publication(message=message, key=topology.TASK_REQUESTS), count)
        for message, count in packed([each.message for each in requests])
    ]


def _tell_all(hearing: Sequence[OnOutcome], outcome: PublishOutcome) -> None:
    for tell in hearing:
        tell(outcome)
