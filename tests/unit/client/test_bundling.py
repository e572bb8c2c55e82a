"""The first request of a turn of the loop leaves at once, those that follow go out together, and each hears what became
of it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.client.bundling import Requests, publish_all
from canoa.errors import BrokerUnreachable, DeliveryUnknown, Unroutable, WrongUse
from canoa.wire import bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canoa.broker.port import Broker, PublishOutcome


class Link:
    """The posting side of a broker; `outcomes`: of what is posted, in order. An exception is raised instead."""

    def __init__(self, *outcomes: PublishOutcome | ValueError) -> None:
        self.posted: list[Message] = []
        self._outcomes = list(outcomes)

    def post(
        self, publication: Publication, on_outcome: Callable[[PublishOutcome], None], *, later: bool = False
    ) -> None:
        self.posted.append(publication.message)
        assert (publication.exchange, publication.key) == ("", topology.TASK_REQUESTS)
        assert publication.mandatory
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, ValueError):
            raise outcome
        asyncio.get_running_loop().call_soon(on_outcome, outcome)

    async def publish_many(self, publications: Sequence[Publication]) -> list[PublishOutcome]:
        self.posted += [each.message for each in publications]
        return [cast("PublishOutcome", self._outcomes.pop(0)) for _ in publications]


def request(name: str, *, body: bytes = b"{}", persistent: bool = False, key: str = topology.TASK_REQUESTS) -> Any:
    return Publication(message=Message(body=body, message_id=name, persistent=persistent), key=key)


async def posted(link: Link, *names: str, **properties: Any) -> dict[str, PublishOutcome]:
    """What each of them hears."""
    requests, heard = Requests(cast("Broker", link)), dict[str, Any]()
    for name in names:
        requests.post(request(name, **properties), partial(heard.__setitem__, name))
        assert len(link.posted) == 1
    async with asyncio.timeout(1):
        while len(heard) < len(names):  # noqa: ASYNC110  # the loop turns a few times
            await asyncio.sleep(0)
    return heard


async def test_a_lone_request_goes_at_once_and_as_published() -> None:
    link = Link(None)

    assert await posted(link, "a") == {"a": None}
    assert not bundle.is_bundle(link.posted[0])


async def test_requests_of_one_turn_of_the_loop_go_together_in_order() -> None:
    link = Link(None, None)

    assert await posted(link, *"abcd") == dict.fromkeys("abcd")
    first, message = link.posted
    assert (first.message_id, bundle.is_bundle(first)) == ("a", False)
    assert [part.message_id for part in bundle.parts(message)] == ["b", "c", "d"]


async def test_a_request_of_the_next_turn_is_not_waited_for() -> None:
    link = Link(None, None)
    requests = Requests(cast("Broker", link))
    requests.post(request("a"), lambda _: None)
    await asyncio.sleep(0)

    assert len(link.posted) == 1
    requests.post(request("b"), lambda _: None)
    await asyncio.sleep(0)
    assert [bundle.is_bundle(each) for each in link.posted] == [False, False]


async def test_a_full_bundle_leaves_while_the_turn_goes_on() -> None:
    link = Link(None, None, None)
    requests = Requests(cast("Broker", link))
    for number in range(bundle.MAX_PARTS + 2):
        requests.post(request(str(number)), lambda _: None)

    assert [len(bundle.parts(each)) for each in link.posted[1:]] == [bundle.MAX_PARTS]

    await asyncio.sleep(0)
    assert [each.message_id for each in link.posted[2:]] == [str(bundle.MAX_PARTS + 1)]


@pytest.mark.parametrize("outcome", [Unroutable("no queue"), DeliveryUnknown("cut"), BrokerUnreachable("no link")])
async def test_each_hears_what_became_of_its_bundle(outcome: PublishOutcome) -> None:
    assert await posted(Link(None, outcome), *"abc") == {"a": None, "b": outcome, "c": outcome}


async def test_what_the_protocol_cannot_carry_is_an_outcome() -> None:
    assert isinstance((await posted(Link(ValueError("too long")), "a"))["a"], WrongUse)


async def test_a_batch_goes_in_bundles_and_has_an_outcome_for_each() -> None:
    refused = Unroutable("no queue")
    link = Link(None, refused, None)
    large = request("large", body=b"x" * bundle.MAX_BYTES)

    outcomes = await publish_all(cast("Broker", link), [request("a"), request("b"), large, request("c")])

    assert [bundle.is_bundle(each) for each in link.posted] == [True, False, False]
    assert outcomes == [None, None, refused, None]


async def test_a_batch_for_the_pool_goes_one_by_one() -> None:
    link = Link(None, None)

    await publish_all(cast("Broker", link), [request("a", key="canoa.action.x"), request("b", key="canoa.action.x")])

    assert [each.message_id for each in link.posted] == ["a", "b"]


async def test_a_bundle_is_on_disk_if_one_of_its_requests_should_be() -> None:
    link = Link(None)

    await publish_all(cast("Broker", link), [request("a"), request("b", persistent=True)])

    assert [each.persistent for each in link.posted] == [True]
