"""What moves owe is sent until the broker has it, or it is somebody else's turn; what comes back goes to others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.errors import BrokerUnreachable, Unroutable, WrongUse
from canoa.execution.outcome import Outcome
from canoa.execution.step_moves import StepEnd, StepLost, Verdict
from canoa.manager import sending
from canoa.manager.metrics import ManagerStats
from canoa.manager.sending import Sender
from canoa.store.routed_port import Moved, NodeRow, Owed
from canoa.transports.amqp import AmqpTransport, TopicTransport
from canoa.transports.reaching import Reaching
from canoa.vocabulary import AMQP, MQTT, Layer, NodeId, TaskId
from canoa.wire import bundle, routed, sapparchi

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from canoa.broker.port import PublishOutcome


BUNDLING = {"bundling", "other"}
"""Nodes that take bundles."""
DEVICES = {"meter-1"}
"""Nodes on MQTT."""


class Post:
    """A broker that answers as it is told, once it is told to."""

    def __init__(self) -> None:
        self.posted: list[Callable[[PublishOutcome], None]] = []
        self.publications: list[Publication] = []

    def post(
        self, publication: Publication, on_outcome: Callable[[PublishOutcome], None], *, later: bool = False
    ) -> None:
        self.posted.append(on_outcome)
        self.publications.append(publication)


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
        reaching=Reaching({AMQP: AmqpTransport(post), MQTT: TopicTransport(post)}, row=row),  # type: ignore[arg-type]
    )


def row(node_id: NodeId) -> NodeRow:
    protocol = MQTT if node_id in DEVICES else AMQP
    return NodeRow(node_id=node_id, layer=Layer.FOG, protocol=protocol, takes_bundles=node_id in BUNDLING)


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


async def test_a_step_for_a_node_on_mqtt_goes_to_its_topic_and_is_lost_where_nobody_subscribed(
    sender: Sender, post: Post, moves: Moves
) -> None:
    message = Message(body=b"", message_id="task.0.1.1", headers={sapparchi.NODE_ID: "meter-1"})
    await sent(
        sender,
        Owed(key="task.0.1.1", publication=Publication(message=message, exchange=topology.NODE_UNICAST, key="")),
    )
    [publication] = post.publications
    assert (publication.exchange, publication.key) == (topology.AMQ_TOPIC, "sapparchi.node.meter-1.in")
    assert publication.mandatory

    post.posted[0](Unroutable("no subscription"))

    assert isinstance(moves.moves[0], StepLost)


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
    post.posted[0](BrokerUnreachable("no link"))
    assert sender.in_hand == 1
    await asyncio.sleep(0.01)

    assert (sender.in_hand, len(post.posted), moves.paid) == (0, 1, [])


async def test_nothing_is_sent_once_it_has_stopped(sender: Sender, post: Post, moves: Moves) -> None:
    await sender.stop()

    await sent(sender, owed())

    assert (sender.in_hand, post.posted, moves.paid) == (0, [], [])


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


# --- Bundles ----------------------------------------------------------------------------------------------


def step(number: int, node_id: str = "bundling") -> Owed:
    key = f"task.{number}.1.1"
    message = Message(body=b"%d" % number, message_id=key, headers={sapparchi.NODE_ID: node_id}, persistent=False)
    return Owed(key=key, publication=Publication(message=message, exchange=topology.NODE_UNICAST, key=""))


def reply(number: int, queue: str = "canoa.reply.1") -> Owed:
    message = Message(body=b"%d" % number, correlation_id=f"{number}", persistent=False)
    publication = Publication(message=message, key=queue, mandatory=False)
    return Owed(key=f"{queue}.{number}", publication=publication)


def final(number: int, *, can_wait: bool = False) -> Owed:
    publication = routed.final_result(TaskId(f"{number}"), b"{}", Outcome.OK)
    return Owed(key=f"final.{number}", publication=publication, can_wait=can_wait)


def bodies(publication: Publication) -> list[bytes]:
    return [part.body for part in bundle.parts(publication.message)]


async def followed(sender: Sender, post: Post, *owed: Owed) -> None:
    """These go behind a first one, which is not shown: so they go together."""
    sender.send([final(-1)])
    post.posted.pop()(None)
    post.publications.clear()
    await sent(sender, *owed)


async def test_the_first_message_of_a_turn_leaves_at_once(sender: Sender, post: Post) -> None:
    sender.send([reply(0), final(0)])

    assert [(each.key, each.message.body) for each in post.publications] == [("canoa.reply.1", b"0")]

    await asyncio.sleep(0)
    assert [each.exchange for each in post.publications] == ["", topology.AMQ_TOPIC]


async def test_every_turn_has_a_first_message(sender: Sender, post: Post) -> None:
    await sent(sender, step(0))

    sender.send([step(1), step(2)])

    assert [each.message.body for each in post.publications] == [b"0", b"1"]


async def test_what_follows_to_one_node_in_a_turn_goes_as_one_message(sender: Sender, post: Post, moves: Moves) -> None:
    sender.send([step(0), step(1, "other")])
    sender.send([step(2), step(3, "other"), step(4)])
    await asyncio.sleep(0)

    first, *together = post.publications
    assert (first.exchange, first.message.body) == (topology.NODE_UNICAST, b"0")
    assert [(each.exchange, each.key, each.mandatory, bodies(each)) for each in together] == [
        ("", topology.node_queue_name("other"), True, [b"1", b"3"]),
        ("", topology.node_queue_name("bundling"), True, [b"2", b"4"]),
    ]
    post.posted[2](None)
    assert moves.paid == ["task.2.1.1", "task.4.1.1"]
    assert sender.in_hand == 3


async def test_a_node_that_did_not_say_that_it_takes_bundles_gets_none(sender: Sender, post: Post) -> None:
    await sent(sender, step(0, "foreign"), step(1, "foreign"))

    assert [each.exchange for each in post.publications] == [topology.NODE_UNICAST] * 2
    assert [each.message.body for each in post.publications] == [b"0", b"1"]


async def test_a_lone_step_goes_as_published(sender: Sender, post: Post) -> None:
    await sent(sender, step(0), reply(0))

    assert {(each.exchange, each.message.body) for each in post.publications} == {
        (topology.NODE_UNICAST, b"0"),
        ("", b"0"),
    }


async def test_final_results_are_published_one_by_one(sender: Sender, post: Post) -> None:
    await sent(sender, final(0), final(1), final(2))

    assert [(each.exchange, each.message.body) for each in post.publications] == [(topology.AMQ_TOPIC, b"{}")] * 3


async def test_replies_go_together_to_sessions_and_one_by_one_to_others(sender: Sender, post: Post) -> None:
    await followed(sender, post, reply(0), reply(1), reply(2, "of.another.make"), reply(3, "of.another.make"))

    together, *alone = post.publications
    assert [(each.key, each.message.body) for each in alone] == [("of.another.make", b"2"), ("of.another.make", b"3")]
    assert (together.key, together.mandatory, bodies(together)) == ("canoa.reply.1", False, [b"0", b"1"])


async def test_a_full_bundle_leaves_while_the_turn_goes_on(sender: Sender, post: Post) -> None:
    sender.send([step(number) for number in range(bundle.MAX_PARTS + 2)])

    first, full = post.publications
    assert first.message.body == b"0"
    assert bodies(full) == [b"%d" % number for number in range(1, bundle.MAX_PARTS + 1)]

    await asyncio.sleep(0)
    assert [each.message.body for each in post.publications[2:]] == [b"%d" % (bundle.MAX_PARTS + 1)]


async def test_final_results_leave_behind_what_somebody_waits_for(sender: Sender, post: Post) -> None:
    await followed(sender, post, final(0), reply(0), final(1), reply(1), step(2))

    assert [each.exchange for each in post.publications] == [
        topology.NODE_UNICAST,
        "",
        topology.AMQ_TOPIC,
        topology.AMQ_TOPIC,
    ]
    assert bodies(post.publications[1]) == [b"0", b"1"]


async def test_a_final_result_whose_caller_is_told_by_a_reply_leaves_a_moment_later(
    sender: Sender, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "WAIT_S", 0.02)
    await sent(sender, reply(0), final(0, can_wait=True))
    assert [each.exchange for each in post.publications] == [""]

    await asyncio.sleep(0.1)
    assert [each.exchange for each in post.publications] == ["", topology.AMQ_TOPIC]


async def test_many_final_results_wait_only_for_the_end_of_the_turn(sender: Sender, post: Post) -> None:
    crowd = [each for number in range(sending.FEW) for each in (reply(number), final(number, can_wait=True))]
    await sent(sender, *crowd)

    assert [each.exchange for each in post.publications] == ["", "", *[topology.AMQ_TOPIC] * sending.FEW]


async def test_stopping_sends_what_waits(sender: Sender, post: Post, moves: Moves) -> None:
    await sent(sender, final(0, can_wait=True))
    assert post.publications == []

    stopping = asyncio.ensure_future(sender.stop())
    await asyncio.sleep(0)
    post.posted[0](None)
    await asyncio.wait_for(stopping, 1)

    assert moves.paid == ["final.0"]


async def test_all_steps_of_a_bundle_for_a_node_without_a_queue_are_lost_to_it(
    sender: Sender, post: Post, moves: Moves
) -> None:
    await followed(sender, post, step(0), step(1))

    post.posted[0](Unroutable("no queue"))

    assert [(type(move), move.step) for move in moves.moves] == [(StepLost, 0), (StepLost, 1)]
    assert moves.paid == ["final.-1", "task.0.1.1", "task.1.1.1"]


async def test_a_bundle_that_could_not_be_sent_is_sent_again(
    sender: Sender, post: Post, moves: Moves, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "REPEAT_AFTER_S", 0.0)
    await followed(sender, post, step(0), step(1), step(2))
    post.posted[0](BrokerUnreachable("no link"))
    await asyncio.sleep(0.01)

    first, again, others = post.publications
    assert (bodies(first), again.message.body, bodies(others)) == ([b"0", b"1", b"2"], b"0", [b"1", b"2"])
    post.posted[1](None)
    post.posted[2](None)
    assert moves.paid == ["final.-1", "task.0.1.1", "task.1.1.1", "task.2.1.1"]


async def test_what_is_owed_when_it_stops_is_still_sent(sender: Sender, post: Post, moves: Moves) -> None:
    sender.send([step(0), step(1)])
    stopping = asyncio.ensure_future(sender.stop())
    await asyncio.sleep(0)

    for answer in post.posted:
        answer(None)
    await asyncio.wait_for(stopping, 1)

    assert moves.paid == ["task.0.1.1", "task.1.1.1"]
