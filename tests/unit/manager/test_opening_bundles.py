"""Bundles are taken apart in order, a few at a time; what only claims to be one is refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.unit.test_bundled import Paper

from canoa.broker.port import Message
from canoa.manager import opening
from canoa.manager.opening import Opener
from canoa.wire import bundle

if TYPE_CHECKING:
    from canoa.broker.port import Delivery
    from canoa.errors import CanoaError


class Desk:
    """What was taken and what was refused."""

    def __init__(self) -> None:
        self.taken: list[Delivery] = []
        self.refused: list[Delivery] = []
        self.is_settling = False
        self.opener = Opener(self.take, self.refuse)

    def take(self, delivery: Delivery) -> None:
        self.taken.append(delivery)
        if self.is_settling:
            delivery.settle()

    def refuse(self, delivery: Delivery, _: CanoaError) -> None:
        self.refused.append(delivery)
        delivery.settle()

    def bring(self, *bodies: bytes) -> Paper:
        [(message, _)] = bundle.packed([Message(body=body) for body in bodies])
        delivery = Paper(message)
        self.opener.on_delivery(delivery)
        return delivery

    def settle_all(self) -> None:
        for each in list(self.taken):
            each.settle()

    @property
    def bodies(self) -> list[bytes]:
        return [each.message.body for each in self.taken]


@pytest.fixture
async def desk() -> Desk:
    return Desk()


async def test_one_by_one_and_in_order(desk: Desk) -> None:
    desk.bring(b"alone")
    whole = desk.bring(b"a", b"b")

    assert desk.bodies == [b"alone", b"a", b"b"]
    desk.settle_all()
    assert whole.is_settled


async def test_a_bundle_waits_while_enough_is_in_hand_and_a_lone_message_does_not(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "ROOM", 2)
    desk.bring(b"a", b"b")
    desk.bring(b"c", b"d")
    desk.bring(b"alone")
    assert desk.bodies == [b"a", b"b", b"alone"]

    desk.settle_all()
    await asyncio.sleep(0)

    assert desk.bodies == [b"a", b"b", b"alone", b"c", b"d"]


async def test_no_more_are_taken_in_one_turn_of_the_loop_than_it_can_spare(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where those before end meanwhile, and make room."""
    monkeypatch.setattr(opening, "TURN", 3)
    for _ in range(4):
        desk.bring(b"a", b"b")
    assert len(desk.taken) == 4

    desk.settle_all()
    assert len(desk.taken) == 4
    await asyncio.sleep(0)
    assert len(desk.taken) == 8


async def test_bundles_that_go_with_their_link_make_room(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "ROOM", 2)
    for lost in (desk.bring(b"a", b"b"), desk.bring(b"c", b"d")):
        lost.is_settled = True

    desk.bring(b"e", b"f")

    assert desk.bodies == [b"a", b"b", b"e", b"f"]


async def test_a_thousand_bundles_that_end_at_once_do_not_end_the_program(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "ROOM", 1)
    desk.bring(b"a", b"b")
    for _ in range(1000):
        desk.bring(b"c", b"d")
    desk.is_settling = True

    desk.settle_all()
    for _ in range(10):  # a few hundred at a time: others want their turn
        await asyncio.sleep(0)

    assert len(desk.taken) == 2002


async def test_what_is_no_bundle_is_refused_and_the_next_one_is_taken(desk: Desk) -> None:
    broken = Paper(Message(body=b"{", content_type=bundle.CONTENT_TYPE))
    desk.opener.on_delivery(broken)

    desk.bring(b"a", b"b")

    assert desk.refused == [broken]
    assert desk.bodies == [b"a", b"b"]


async def test_stopped_it_opens_no_more_and_leaves_them_to_the_broker(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "ROOM", 2)
    desk.bring(b"a", b"b")
    waiting = desk.bring(b"c", b"d")

    desk.opener.stop()
    late = desk.bring(b"e", b"f")
    desk.settle_all()
    await asyncio.sleep(0)  # those that end make room in the next turn

    assert desk.bodies == [b"a", b"b"]
    assert not waiting.is_settled
    assert not late.is_settled
