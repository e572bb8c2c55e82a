"""A bundle in hand is settled when all of its parts are, and each of them once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from canoa.broker.bundled import PartDelivery, opened
from canoa.broker.port import Message, Settlement
from canoa.errors import Undecodable
from canoa.wire import bundle

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.bundled import Whole


class Paper:
    """A delivery without a broker."""

    exchange, key, redelivered = "x", "k", True

    def __init__(self, message: Message) -> None:
        self.message = message
        self.settled: list[Settlement] = []
        self.is_settled = False

    def settle(self, how: Settlement = Settlement.ACK) -> bool:
        self.settled.append(how)
        self.is_settled = True
        return True


def parts_of(count: int, on_end: Callable[[Whole], None] | None = None) -> tuple[Paper, list[PartDelivery]]:
    [(message, _)] = bundle.packed([Message(body=b"%d" % number) for number in range(count)])
    delivery = Paper(message)
    return delivery, opened(delivery, now_s=0.0, on_end=on_end)


def test_it_is_acknowledged_with_its_last_part_and_not_before() -> None:
    delivery, (first, second, third) = parts_of(3)

    assert first.settle()
    assert third.settle()
    assert delivery.settled == []
    assert second.settle()

    assert delivery.settled == [Settlement.ACK]


def test_a_part_is_settled_once() -> None:
    delivery, (first, _) = parts_of(2)

    assert first.settle()
    assert not first.settle()

    assert (first.is_settled, delivery.settled) == (True, [])


@pytest.mark.parametrize("how", [Settlement.REQUEUE, Settlement.REJECT])
def test_one_part_that_must_come_again_brings_all_of_them_once_the_others_have_ended(how: Settlement) -> None:
    delivery, (first, second, third) = parts_of(3)

    first.settle(how)
    second.settle()
    assert delivery.settled == []
    third.settle()

    assert delivery.settled == [Settlement.REQUEUE]


def test_parts_whose_link_is_gone_are_nobodys() -> None:
    ended: list[Whole] = []
    delivery, (first, second) = parts_of(2, on_end=ended.append)

    delivery.is_settled = True

    assert first.is_settled
    assert not second.settle()
    assert (delivery.settled, ended) == ([], [])


def test_parts_are_in_order_and_know_how_their_bundle_came() -> None:
    ended: list[Whole] = []
    delivery, parts = parts_of(3, on_end=ended.append)

    assert [part.message.body for part in parts] == [b"0", b"1", b"2"]
    assert {(part.exchange, part.key, part.redelivered) for part in parts} == {("x", "k", True)}
    for part in parts:
        part.settle()
    assert (ended, delivery.settled) == ([parts[0].whole], [Settlement.ACK])


def test_what_is_no_bundle_stays_whole() -> None:
    delivery = Paper(Message(body=b"{", content_type=bundle.CONTENT_TYPE))

    with pytest.raises(Undecodable):
        opened(delivery, now_s=0.0)

    assert delivery.settled == []
