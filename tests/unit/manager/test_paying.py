"""What moves owe is sent until the broker has it, or it is somebody else's turn; what comes back goes to others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.errors import BrokerUnreachable, Unroutable, WrongUse
from canoa.execution.step_moves import StepEnd, StepLost, Verdict
from canoa.manager import sending
from canoa.manager.metrics import ManagerStats
from canoa.manager.sending import Sender
from canoa.store.routed_port import Moved, Owed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from canoa.broker.port import PublishOutcome


BUNDLING = {"bundling", "other"}
"""Nodes that take bundles."""


class Post:
    """A broker that answers as it is told, once it is told to."""

    def __init__(self) -> None:
        self.posted: list[Callable[[PublishOutcome], None]] = []

    def post(self, publication: Publication, on_outcome: Callable[[PublishOutcome], None]) -> None:
        self.posted.append(on_outcome)


class Moves:
    """What the sender asks to be moved and paid."""

    def __init__(self) -> None:
        self.moves: list[Any] = []
        self.paid: list[str] = []

    def post(self, move: Any, on_answer: Callable[[Moved], None]) -> None:
        self.moves.append(move)
        on_answer(Moved(verdict=Verdict.TAKEN))

    def pay(self, keys: Iterable[str]) -> None:
        self.paid.extend(keys)


def owed(key: str = "task.0.1.1", exchange: str = topology.NODE_UNICAST) -> Owed:
    return Owed(key=key, publication=Publication(message=Message(body=b"", message_id=key), exchange=exchange, key=""))


@pytest.fixture
def post() -> Post:
    return Post()


@pytest.fixture
def moves() -> Moves:
    return Moves()


@pytest.fixture
async def sender(post: Post, moves: Moves) -> Sender:
    return Sender(
        post,  # type: ignore[arg-type]  # what is used of them
        None,  # type: ignore[arg-type]
        moves,  # type: ignore[arg-type]
        stats=ManagerStats(),
        takes_bundles=BUNDLING.__contains__,
    )


async def sent(sender: Sender, *owed: Owed) -> None:
    """At the end of the turn of the loop."""
    sender.send(owed)
    await asyncio.sleep(0)


async def test_what_the_broker_took_is_paid(sender: Sender, post: Post, moves: Moves) -> None:
    await sent(sender, owed())
    assert moves.paid == []

    post.posted[0](None)

    assert moves.paid == ["task.0.1.1"]
    assert sender.in_hand == 0


async def test_a_step_for_a_node_without_a_queue_is_lost_to_it(sender: Sender, post: Post, moves: Moves) -> None:
    await sent(sender, owed())
    post.posted[0](Unroutable("no queue"))

    [move] = moves.moves
    assert isinstance(move, StepLost)
    assert (move.task_id, move.step, move.attempt, move.send) == ("task", 0, 1, 1)
    assert moves.paid == ["task.0.1.1"]


async def test_a_step_that_no_message_can_carry_is_refused(sender: Sender, post: Post, moves: Moves) -> None:
    await sent(sender, owed())
    post.posted[0](WrongUse("too many headers"))

    [move] = moves.moves
    assert isinstance(move, StepEnd)
    assert (move.outcome, move.error) == ("refused", "too many headers")


async def test_an_answer_for_a_caller_who_is_gone_is_owed_no_longer(sender: Sender, post: Post, moves: Moves) -> None:
    await sent(sender, owed("task.0.reply.gone", exchange=""))
    post.posted[0](Unroutable("no queue"))

    assert (moves.moves, moves.paid) == ([], ["task.0.reply.gone"])


async def test_what_could_not_be_sent_is_sent_again(
    sender: Sender, post: Post, moves: Moves, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "REPEAT_AFTER_S", 0.0)
    await sent(sender, owed())
    post.posted[0](BrokerUnreachable("no link"))
    await asyncio.sleep(0.01)

    post.posted[1](None)

    assert moves.paid == ["task.0.1.1"]


async def test_what_cannot_be_sent_for_long_is_left_to_whoever_looks_for_it(
    sender: Sender, post: Post, moves: Moves, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "REPEAT_AFTER_S", 0.0)
    monkeypatch.setattr(sending, "KEEP_TRYING_S", 0.0)
    await sent(sender, owed("old"))
    assert post.posted == []
    monkeypatch.setattr(sending, "KEEP_TRYING_S", 10.0)

    await sent(sender, owed("new"))

    assert (sender.in_hand, len(post.posted), moves.paid) == (1, 1, [])


async def test_what_is_in_hand_is_not_sent_twice(sender: Sender, post: Post) -> None:
    await sent(sender, owed())
    await sent(sender, owed())

    assert len(post.posted) == 1


async def test_deliveries_are_acknowledged_later_while_the_broker_takes_nothing(
    sender: Sender, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "MAX_IN_HAND", 1)
    settled: list[str] = []
    sender.when_roomy(lambda: settled.append("first"))
    await sent(sender, owed())

    sender.when_roomy(lambda: settled.append("second"))
    assert settled == ["first"]

    post.posted[0](None)
    assert settled == ["first", "second"]


async def test_stopping_waits_a_moment_for_what_is_on_its_way(sender: Sender, post: Post, moves: Moves) -> None:
    sender.send([owed()])
    stopping = asyncio.ensure_future(sender.stop())
    await asyncio.sleep(0)
    assert not stopping.done()

    post.posted[0](None)
    await asyncio.wait_for(stopping, 1)

    assert moves.paid == ["task.0.1.1"]
