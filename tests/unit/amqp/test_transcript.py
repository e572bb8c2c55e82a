"""A conversation that a real RabbitMQ 3.10.8 had with the engine, held again with its record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.amqp.client import Client
from tests.unit.amqp.conversation import EMPTY, USUAL, converse
from tests.unit.amqp.golden import transcript

from canoa.broker.amqp.errors import ClosedByBroker, ClosedByUs

if TYPE_CHECKING:
    from collections.abc import Callable

TRANSCRIPT = transcript("rabbitmq-3.10.8.hex")

EVENTS: list[tuple[Any, ...]] = [
    ("open", 0),
    ("confirm", 1, 1, False, True),
    ("confirm", 1, 2, False, True),
    ("return", 1, "NO_ROUTE", "", "nowhere"),
    ("confirm", 1, 3, False, True),
    ("confirm", 1, 4, False, True),
    ("confirm", 1, 5, True, False),
    ("deliver", 2, 1, False, "ex", "a.b", USUAL),
    ("deliver", 2, 2, False, "", "q", EMPTY),
    ("deliver", 2, 3, True, "ex", "a.b", USUAL),
    ("cancelled", 2),
    ("closed", 1, ClosedByBroker, "404 NOT_FOUND - no queue 'q' in vhost '/'"),
    ("closed", 2, ClosedByUs, "the channel was closed"),
    ("closed", 0, ClosedByUs, "the connection was closed"),
]


class Record:
    """Plays the broker: checks what the client says and answers as it was answered, in pieces of `size` bytes."""

    def __init__(self, size: int) -> None:
        self._left = iter(TRANSCRIPT)
        self._next = next(self._left, None)
        self._size = size

    def exchange(self, client: Client, until: Callable[[], bool]) -> None:
        while client.connection.outgoing:
            assert self._next == (">", client.says())
            self._next = next(self._left, None)
            answer = b"".join(self._answers())
            for at in range(0, len(answer), self._size):
                client.connection.receive(answer[at : at + self._size])
        assert until()

    def _answers(self) -> list[bytes]:
        answers = []
        while self._next is not None and self._next[0] == "<":
            answers.append(self._next[1])
            self._next = next(self._left, None)
        return answers

    @property
    def is_finished(self) -> bool:
        return self._next is None


def events_of(client: Client) -> list[tuple[Any, ...]]:
    """As in `EVENTS`: of a returned message only where it was going, since it is compared by itself."""
    return [event[:-1] if event[0] == "return" else event for event in client.events]


@given(st.integers(min_value=1, max_value=1000))
def test_the_conversation_goes_as_it_went_with_rabbitmq(size: int) -> None:
    client, record = Client(), Record(size)

    converse(client, record)

    assert events_of(client) == EVENTS
    assert record.is_finished
    assert client.connection.is_over


def test_the_record_holds_what_the_tests_are_about() -> None:
    client = Client()
    converse(client, Record(10_000))

    assert client.connection.server_properties["version"] == "3.10.8"
    assert client.connection.heartbeat_s == 10
    (returned,) = [event[-1] for event in client.events if event[0] == "return"]
    assert (returned.body, returned.message_id) == (b"back", "m-2")


def test_rabbitmq_answers_a_later_request_first() -> None:
    """Why answers are matched by their kind: here `queue.declare-ok` comes before the earlier `basic.cancel-ok`."""
    data = b"".join(each for side, each in TRANSCRIPT if side == "<")

    depth, cancelled = data.rindex(b"\x00\x32\x00\x0b\x01q"), data.index(b"\x00\x3c\x00\x1f\x03q#1")

    assert depth < cancelled
