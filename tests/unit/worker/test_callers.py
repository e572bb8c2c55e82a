"""Results that end at once for one session go there together; a task is acknowledged when its result is there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from canoa.broker import topology
from canoa.broker.port import Message, Publication, Settlement
from canoa.errors import BrokerUnreachable, DeliveryUnknown, Unroutable
from canoa.wire import bundle
from canoa.worker.callers import Callers
from canoa.worker.settling import Settler

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.port import Broker, PublishOutcome

OURS = f"{topology.REPLY_PREFIX}one"
ANOTHER = f"{topology.REPLY_PREFIX}another"
FOREIGN = "amq.gen-somebody"


class Link:
    """The posting side of a broker: what was posted, and how each of it ends when told."""

    def __init__(self) -> None:
        self.posted: list[Publication] = []
        self._hearing: list[Callable[[PublishOutcome], None]] = []

    def post(
        self, publication: Publication, on_outcome: Callable[[PublishOutcome], None], *, later: bool = False
    ) -> None:
        self.posted.append(publication)
        self._hearing.append(on_outcome)

    def end(self, at: int, outcome: PublishOutcome = None) -> None:
        self._hearing[at](outcome)

    def names(self) -> list[list[str | None]]:
        """Of the results in every message."""
        return [
            [part.message_id for part in bundle.parts(each.message)]
            if bundle.is_bundle(each.message)
            else [each.message.message_id]
            for each in self.posted
        ]


class Task:
    """A delivery without a broker."""

    exchange, key, redelivered, message = "", "canoa.action.x", False, Message(body=b"")

    def __init__(self) -> None:
        self.is_settled = False

    def settle(self, how: Settlement = Settlement.ACK) -> bool:
        assert how is Settlement.ACK
        self.is_settled = True
        return True


class World:
    def __init__(self) -> None:
        self.link = Link()
        self.settler = Settler(cast("Broker", self.link))
        self.callers = Callers(cast("Broker", self.link), self.settler)
        self.tasks: dict[str, Task] = {}
        self.gone: list[str] = []

    def tell(self, name: str, to: str = OURS, *, body: bytes = b"1") -> None:
        task = self.tasks[name] = Task()
        self.settler.took()

        def if_gone() -> None:
            self.gone.append(name)
            self.settler.done(task)

        self.callers.tell(to, Message(body=body, message_id=name), task, if_gone=if_gone)

    def acknowledged(self) -> str:
        return "".join(name for name, task in self.tasks.items() if task.is_settled)

    async def is_empty(self) -> bool:
        try:
            await asyncio.wait_for(self.settler.wait_empty(), 0.01)
        except TimeoutError:
            return False
        return True


@pytest.fixture
async def world() -> World:
    return World()


async def test_the_first_result_of_a_turn_leaves_at_once_and_the_others_together_at_its_end(world: World) -> None:
    for name in "abcd":
        world.tell(name)
    assert world.link.names() == [["a"]]

    await asyncio.sleep(0)

    assert world.link.names() == [["a"], ["b", "c", "d"]]
    assert {each.key for each in world.link.posted} == {OURS}
    assert all(each.mandatory and not each.exchange for each in world.link.posted)


async def test_a_result_of_the_next_turn_is_not_waited_for(world: World) -> None:
    for name in "abc":
        world.tell(name)
        await asyncio.sleep(0)

    assert world.link.names() == [["a"], ["b"], ["c"]]


async def test_every_session_gets_its_own(world: World) -> None:
    for name, to in zip("abcdef", (OURS, OURS, ANOTHER, OURS, ANOTHER, OURS), strict=True):
        world.tell(name, to)
    await asyncio.sleep(0)

    assert world.link.names() == [["a"], ["b", "d", "f"], ["c", "e"]]
    assert [each.key for each in world.link.posted] == [OURS, OURS, ANOTHER]


async def test_a_caller_that_is_no_session_of_ours_gets_single_messages(world: World) -> None:
    for name in "abc":
        world.tell(name, FOREIGN)
    await asyncio.sleep(0)

    assert world.link.names() == [["a"], ["b"], ["c"]]


async def test_tasks_are_acknowledged_when_the_bundle_with_their_results_is_confirmed(world: World) -> None:
    for name in "abc":
        world.tell(name)
    await asyncio.sleep(0)
    assert world.acknowledged() == ""

    world.link.end(1)
    assert world.acknowledged() == "bc"
    assert not await world.is_empty()
    world.link.end(0)
    assert world.acknowledged() == "abc"
    assert await world.is_empty()


async def test_results_too_large_for_a_bundle_go_alone(world: World) -> None:
    for name in "abc":
        world.tell(name, body=b"x" * (bundle.MAX_BYTES // 2 + 1))
    await asyncio.sleep(0)

    assert world.link.names() == [["a"], ["b"], ["c"]]


@pytest.mark.parametrize("outcome", [DeliveryUnknown("cut"), BrokerUnreachable("no link"), Unroutable("no queue")])
async def test_after_a_bundle_that_was_not_taken_every_result_is_tried_alone(
    world: World, outcome: PublishOutcome
) -> None:
    for name in "abc":
        world.tell(name)
    await asyncio.sleep(0)

    world.link.end(1, outcome)

    assert world.link.names() == [["a"], ["b", "c"], ["b"], ["c"]]
    assert world.acknowledged() == ""
    for at in (0, 2, 3):
        world.link.end(at)
    assert world.acknowledged() == "abc"
    assert await world.is_empty()


async def test_results_for_a_session_that_is_gone_are_given_up_one_by_one(world: World) -> None:
    for name in "abc":
        world.tell(name)
    await asyncio.sleep(0)

    world.link.end(1, Unroutable("no queue"))
    for at in (0, 2, 3):
        world.link.end(at, Unroutable("no queue"))

    assert sorted(world.gone) == ["a", "b", "c"]
    assert await world.is_empty()


async def test_what_the_broker_gives_to_somebody_else_is_no_longer_answered(world: World) -> None:
    for name in "abc":
        world.tell(name)
    await asyncio.sleep(0)
    world.tasks["b"].settle()  # as when its link is gone

    world.link.end(1, DeliveryUnknown("cut"))

    assert world.link.names() == [["a"], ["b", "c"], ["c"]]
    world.link.end(0)
    world.link.end(2)
    assert await world.is_empty()
