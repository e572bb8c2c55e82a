"""How requests, channels and the connection live and end, whoever speaks first."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

import pytest
from tests.unit.amqp.client import Answer, Client, ask, opened
from tests.unit.amqp.test_streams import delivery, returned

from canoa.broker.amqp import content, methods
from canoa.broker.amqp.engine import CAPABILITIES, LARGE_BYTES
from canoa.broker.amqp.errors import ClosedByBroker, ClosedByUs, LinkLost, SetupMismatch
from canoa.broker.amqp.methods import encode, frame
from canoa.broker.port import Message, Publication, Settlement

if TYPE_CHECKING:
    from canoa.broker.amqp.engine import Channel

MESSAGE = Message(body=b"body", message_id="m-1")
PUBLICATION = Publication(message=MESSAGE, key="q")
CHANNEL_CLOSE = encode(1, methods.CHANNEL_CLOSE, 200, "", 0, 0)
CHANNEL_CLOSE_OK = encode(1, methods.CHANNEL_CLOSE_OK)
CONNECTION_CLOSE = encode(0, methods.CONNECTION_CLOSE, 200, "goodbye", 0, 0)


def with_channel() -> tuple[Client, Channel]:
    client = opened()
    return client, client.open_channel()


def deliver(client: Client, number: int, tag: int = 1) -> None:
    client.connection.receive(b"".join(delivery(number, tag, MESSAGE)[0]))


def purge(channel: Channel) -> Answer:
    return ask(channel, methods.QUEUE_PURGE_OK, methods.QUEUE_PURGE, 0, "q", False)


# --- Shaking hands ------------------------------------------------------------------------------


def test_the_handshake_says_who_we_are_and_agrees_on_the_smaller_limits() -> None:
    client = Client(vhost="plant", heartbeat_s=10)

    client.connection.start()
    assert client.says() == methods.PROTOCOL_HEADER
    client.hears(0, methods.CONNECTION_START, 0, 9, {"version": "4.1"}, b"AMQPLAIN PLAIN", b"en_US")
    properties = {"product": "Canoa", "connection_name": "tests", "capabilities": CAPABILITIES}
    assert client.says() == encode(0, methods.CONNECTION_START_OK, properties, "PLAIN", b"\x00guest\x00guest", "en_US")
    client.hears(0, methods.CONNECTION_TUNE, 100, 65536, 60)
    assert client.says() == encode(0, methods.CONNECTION_TUNE_OK, 100, 65536, 10) + encode(
        0, methods.CONNECTION_OPEN, "plant", "", False
    )
    assert not client.connection.is_open
    client.hears(0, methods.CONNECTION_OPEN_OK, "")

    assert client.connection.is_open
    assert client.events == [("open", 0)]
    assert client.connection.server_properties == {"version": "4.1"}


@pytest.mark.parametrize(
    ("offered", "heartbeat_s", "agreed"),
    [
        ((0, 0, 0), 10, (2047, 131072, 10)),
        ((65535, 2**31, 600), 10, (2047, 131072, 10)),
        ((1, 4096, 5), 10, (1, 4096, 5)),
        ((0, 0, 60), 0, (2047, 131072, 0)),
    ],
)
def test_zero_means_no_limit(offered: tuple[int, int, int], heartbeat_s: int, agreed: tuple[int, int, int]) -> None:
    client = Client(heartbeat_s=heartbeat_s)
    client.hears(0, methods.CONNECTION_START, 0, 9, {}, b"PLAIN", b"en_US")
    client.says()

    client.hears(0, methods.CONNECTION_TUNE, *offered)

    assert client.says().startswith(encode(0, methods.CONNECTION_TUNE_OK, *agreed))


def test_who_logs_in_by_certificate_sends_no_password() -> None:
    client = Client(is_external=True)

    client.hears(0, methods.CONNECTION_START, 0, 9, {}, b"PLAIN EXTERNAL", b"en_US")

    said = client.says()
    assert b"\x08EXTERNAL\x00\x00\x00\x00\x05en_US" in said
    assert b"guest" not in said


@pytest.mark.parametrize(
    ("is_external", "offered", "said"),
    [
        (True, b"PLAIN AMQPLAIN", "no EXTERNAL login, only PLAIN AMQPLAIN; switch on its plugin rabbitmq_auth_mech"),
        (False, b"EXTERNAL", "no PLAIN login, only EXTERNAL; for EXTERNAL, set tls_cert and tls_key"),
    ],
)
def test_a_way_to_log_in_that_is_not_offered_is_told_with_the_remedy(
    is_external: bool, offered: bytes, said: str
) -> None:
    with pytest.raises(SetupMismatch, match=said):
        Client(is_external=is_external).hears(0, methods.CONNECTION_START, 0, 9, {}, offered, b"en_US")


@pytest.mark.parametrize(
    ("said", "is_tls"), [(b"\x15\x03\x01\x00\x02\x02\x0a", True), (b"\x01\x00", False), (b"", False)]
)
def test_what_says_tls_instead_of_amqp_is_recognised(said: bytes, is_tls: bool) -> None:
    client = Client()

    client.connection.receive(said)

    assert client.connection.has_met_tls is is_tls


def test_the_writer_is_woken_again_for_what_is_large() -> None:
    client, channel = with_channel()
    client.wakes.clear()
    large = Publication(message=Message(body=b"x" * LARGE_BYTES), key="q", mandatory=False)

    for each in (PUBLICATION, large, PUBLICATION, large):
        channel.publish(each)

    assert client.wakes == [True, True, True]


def test_the_writer_is_woken_once_for_many_frames() -> None:
    client, channel = with_channel()
    client.wakes.clear()

    for _ in range(5):
        channel.publish(PUBLICATION)
    assert client.wakes == [True]
    client.says()
    channel.settle(1, Settlement.ACK)

    assert client.wakes == [True, True]


def test_settlements_wait_for_company_until_a_quarter_of_the_prefetch_is_settled() -> None:
    client, channel = with_channel()
    client.wakes.clear()
    channel.prefetch = 200

    for tag in range(1, 50):
        channel.settle(tag, Settlement.ACK)
    assert client.wakes == [False]
    channel.settle(50, Settlement.ACK)

    assert client.wakes == [False, True]
    assert client.says().count(b"\xce") == 50


def test_what_waits_for_company_leaves_with_the_first_urgent_frame_and_in_order() -> None:
    client, channel = with_channel()
    client.wakes.clear()
    channel.prefetch = 200

    channel.settle(1, Settlement.ACK)
    channel.publish(PUBLICATION)

    assert client.wakes == [False, True]
    assert client.says().startswith(content.settle_frame(channel.number, 1, Settlement.ACK))


# --- Requests and answers -------------------------------------------------------------------------


def test_answers_of_one_kind_go_to_the_requests_in_their_order() -> None:
    client, channel = with_channel()
    first, second, third = purge(channel), purge(channel), purge(channel)

    for count in (1, 2, 3):
        client.hears(1, methods.QUEUE_PURGE_OK, count)

    assert [each.result(0) for each in (first, second, third)] == [(1,), (2,), (3,)]


def test_an_answer_for_someone_who_left_goes_to_nobody_else() -> None:
    client, channel = with_channel()
    first, second = purge(channel), purge(channel)
    first.cancel()

    client.hears(1, methods.QUEUE_PURGE_OK, 1)
    assert not second.done()
    client.hears(1, methods.QUEUE_PURGE_OK, 2)

    assert second.result(0) == (2,)


def test_an_answer_may_overtake_one_of_another_kind() -> None:
    client, channel = with_channel()
    cancelled = ask(channel, methods.BASIC_CANCEL_OK, methods.BASIC_CANCEL, "t", False)
    purged = purge(channel)

    client.hears(1, methods.QUEUE_PURGE_OK, 7)
    client.hears(1, methods.BASIC_CANCEL_OK, "t")

    assert (cancelled.result(0), purged.result(0)) == (("t",), (7,))


@pytest.mark.parametrize("queue", ["q" * 256, "\ud800"])
def test_a_request_that_cannot_be_sent_is_not_waited_for(queue: str) -> None:
    client, channel = with_channel()

    with pytest.raises(ValueError, match=r"255|surrogates"):
        ask(channel, methods.QUEUE_PURGE_OK, methods.QUEUE_PURGE, 0, queue, False)
    answer = purge(channel)
    client.hears(1, methods.QUEUE_PURGE_OK, 1)

    assert answer.result(0) == (1,)


def test_a_request_larger_than_a_frame_is_refused_before_it_costs_the_connection() -> None:
    client, channel = with_channel()
    arguments = {"x-note": "x" * 131072}

    with pytest.raises(ValueError, match=r"queue\.declare"):
        ask(channel, methods.QUEUE_DECLARE_OK, methods.QUEUE_DECLARE, 0, "q", *(False,) * 5, arguments)

    assert client.says() == b""


def test_flow_and_cancel_are_answered_as_the_broker_wishes() -> None:
    client, _ = with_channel()

    client.hears(1, methods.CHANNEL_FLOW, False)
    client.hears(1, methods.BASIC_CANCEL, "t", True)
    client.hears(1, methods.BASIC_CANCEL, "t", False)

    assert client.says() == encode(1, methods.CHANNEL_FLOW_OK, False) + encode(1, methods.BASIC_CANCEL_OK, "t")
    assert client.events == [("cancelled", 1)] * 2


def test_blocked_and_unblocked_are_told_with_their_reason() -> None:
    client, channel = with_channel()

    client.hears(0, methods.CONNECTION_BLOCKED, "low on memory")
    channel.settle(1, Settlement.ACK)
    client.hears(0, methods.CONNECTION_UNBLOCKED)

    assert client.events == [("blocked", 0, "low on memory"), ("blocked", 0, None)]
    assert client.says() == encode(1, methods.BASIC_ACK, 1, False)


# --- Channels end -----------------------------------------------------------------------------------


def test_closing_a_channel_waits_for_the_broker() -> None:
    client, channel = with_channel()
    closed: Answer = Future()

    channel.close(closed)
    assert client.says() == CHANNEL_CLOSE
    assert not closed.done()
    client.connection.receive(CHANNEL_CLOSE_OK)

    assert closed.result(0) is None
    assert client.events == [("closed", 1, ClosedByUs, "the channel was closed")]


def test_nothing_is_sent_on_a_channel_that_is_closing() -> None:
    """A frame on a channel that the broker has closed makes it close the whole connection (504)."""
    client, channel = with_channel()
    channel.close(Future())
    client.says()

    channel.publish(PUBLICATION)
    channel.settle(1, Settlement.ACK)
    channel.close(Future())
    client.hears(1, methods.CHANNEL_FLOW, True)
    client.hears(1, methods.BASIC_CANCEL, "t", False)
    answer = purge(channel)

    assert client.says() == b""
    assert isinstance(answer.exception(0), LinkLost)


def test_nothing_is_sent_on_a_channel_that_the_broker_closed() -> None:
    client, channel = with_channel()
    client.hears(1, methods.CHANNEL_CLOSE, 404, "gone", 0, 0)
    assert client.says() == CHANNEL_CLOSE_OK

    channel.publish(PUBLICATION)
    channel.settle(1, Settlement.ACK, multiple=True)
    closed: Answer = Future()
    channel.close(closed)

    assert client.says() == b""
    assert closed.result(0) is None
    assert channel.settled_through == 0


def test_deliveries_that_cross_our_close_are_not_ours_but_confirms_and_returns_are() -> None:
    client, channel = with_channel()
    frames, _ = delivery(1, 1, MESSAGE)
    client.connection.receive(frames[0])  # its body comes after we closed

    channel.close(Future())
    client.connection.receive(b"".join(frames[1:]))
    deliver(client, 1, tag=2)
    returned_frames, event = returned(1, MESSAGE)
    client.connection.receive(b"".join(returned_frames))
    client.hears(1, methods.BASIC_ACK, 5, True)

    assert client.events == [event, ("confirm", 1, 5, True, True)]


def test_answers_that_cross_our_close_still_arrive() -> None:
    client, channel = with_channel()
    answer = purge(channel)

    channel.close(Future())
    client.hears(1, methods.QUEUE_PURGE_OK, 3)

    assert answer.result(0) == (3,)


def test_whoever_waits_hears_why_the_broker_closed_the_channel() -> None:
    client, channel = with_channel()
    abandoned, first, second = purge(channel), purge(channel), purge(channel)
    abandoned.cancel()

    client.hears(1, methods.CHANNEL_CLOSE, 403, "ACCESS_REFUSED", 50, 30)

    for answer in (first, second):
        error = answer.exception(0)
        assert isinstance(error, ClosedByBroker)
        assert (error.code, error.text, error.whole_connection) == (403, "ACCESS_REFUSED", False)
    assert client.events == [("closed", 1, ClosedByBroker, "403 ACCESS_REFUSED")]


def test_both_sides_may_close_a_channel_at_once() -> None:
    client, channel = with_channel()
    asked, closed, closed_again = purge(channel), Future[None](), Future[None]()
    channel.close(closed)
    channel.close(closed_again)
    client.says()

    client.hears(1, methods.CHANNEL_CLOSE, 404, "gone", 0, 0)
    client.connection.receive(CHANNEL_CLOSE_OK)  # the broker answers our close too

    assert client.says() == CHANNEL_CLOSE_OK
    assert isinstance(asked.exception(0), ClosedByBroker)
    assert closed.result(0) is closed_again.result(0) is None
    assert client.events == [("closed", 1, ClosedByBroker, "404 gone")]


def test_late_frames_of_a_closed_channel_reach_nobody() -> None:
    client, channel = with_channel()
    channel.close(Future())
    client.connection.receive(CHANNEL_CLOSE_OK)
    client.events.clear()
    other = client.open_channel()

    deliver(client, channel.number)
    client.hears(channel.number, methods.BASIC_ACK, 1, False)
    deliver(client, other.number)

    assert [event[:2] for event in client.events] == [("deliver", other.number)]


def test_a_channel_number_is_used_again_as_late_as_possible() -> None:
    client = opened(channel_max=3)
    numbers = []
    for _ in range(7):
        channel = client.open_channel()
        numbers.append(channel.number)
        channel.close(Future())
        client.hears(channel.number, methods.CHANNEL_CLOSE_OK)

    assert numbers == [1, 2, 3, 1, 2, 3, 1]


def test_there_are_no_more_channels_than_the_broker_allows() -> None:
    client = opened(channel_max=2)
    first, _ = client.open_channel(), client.open_channel()

    with pytest.raises(LinkLost, match="all 2 channels"):
        client.ask_for_channel()
    first.close(Future())
    client.hears(first.number, methods.CHANNEL_CLOSE_OK)

    assert client.open_channel().number == first.number


# --- The connection ends ------------------------------------------------------------------------------


def test_the_broker_may_close_before_the_handshake_is_done() -> None:
    client = Client()
    client.connection.start()
    client.hears(0, methods.CONNECTION_START, 0, 9, {}, b"PLAIN", b"en_US")
    client.says()

    client.hears(0, methods.CONNECTION_CLOSE, 403, "ACCESS_REFUSED - login", 0, 0)

    assert client.events == [("closed", 0, ClosedByBroker, "403 ACCESS_REFUSED - login")]
    assert client.says() == encode(0, methods.CONNECTION_CLOSE_OK)


@pytest.mark.parametrize("frames_so_far", range(5))
def test_the_broker_may_close_at_any_point(frames_so_far: int) -> None:
    client, channel = with_channel()
    answer = purge(channel)
    message = Message(body=b"x" * 9000)
    for each in delivery(1, 1, message)[0][:frames_so_far]:
        client.connection.receive(each)
    client.events.clear()

    client.connection.receive(
        encode(0, methods.CONNECTION_CLOSE, 320, "shutdown", 0, 0) + encode(0, methods.CONNECTION_OPEN_OK, "") + b"rest"
    )
    client.connection.receive(b"more than nothing")

    error = answer.exception(0)
    assert isinstance(error, ClosedByBroker)
    assert error.whole_connection
    assert client.events == [
        ("closed", 1, ClosedByBroker, "320 shutdown"),
        ("closed", 0, ClosedByBroker, "320 shutdown"),
    ]
    assert client.connection.is_over
    assert not client.connection.is_open
    assert not channel.is_open


def test_goodbye_is_said_once_and_heard_by_all_who_said_it() -> None:
    client, channel = with_channel()
    asked, first, second = purge(channel), Future[None](), Future[None]()
    client.says()

    client.connection.close(first)
    client.connection.close(second)
    assert client.says() == CONNECTION_CLOSE
    client.hears(0, methods.CONNECTION_CLOSE_OK)
    third: Answer = Future()
    client.connection.close(third)

    assert first.result(0) is second.result(0) is third.result(0) is None
    assert isinstance(asked.exception(0), ClosedByUs)
    assert client.says() == b""


def test_both_sides_may_say_goodbye_at_once() -> None:
    client = opened()
    closed: Answer = Future()
    client.connection.close(closed)
    client.says()

    client.hears(0, methods.CONNECTION_CLOSE, 320, "shutdown", 0, 0)

    assert client.says() == encode(0, methods.CONNECTION_CLOSE_OK)
    assert closed.result(0) is None
    assert client.events == [("closed", 0, ClosedByBroker, "320 shutdown")]


@pytest.mark.parametrize("state", ["new", "closing", "over"])
def test_no_channel_opens_on_a_connection_that_is_not_open(state: str) -> None:
    client = Client() if state == "new" else opened()
    if state == "closing":
        client.connection.close(Future())
    elif state == "over":
        client.connection.end(LinkLost("cut"))
    client.says()

    channel, answer = client.ask_for_channel()

    assert isinstance(answer.exception(0), LinkLost)
    assert not channel.is_open
    assert client.says() == b""


def test_a_lost_link_ends_everything_once() -> None:
    client, channel = with_channel()
    other = client.open_channel()
    asked, closing = purge(channel), Future[None]()
    other.close(closing)

    client.connection.end(LinkLost("cut"))
    client.connection.end(LinkLost("again"))
    channel.end(LinkLost("again"))

    assert isinstance(asked.exception(0), LinkLost)
    assert closing.result(0) is None
    assert client.events == [
        (what, number, LinkLost, "cut") for what, number in [("closed", 1), ("closed", 2), ("closed", 0)]
    ]


def test_what_is_heard_inside_a_callback_that_ends_the_connection_is_the_last() -> None:
    client, channel = with_channel()
    channel.on_cancelled = lambda: client.connection.end(LinkLost("enough"))

    client.connection.receive(
        encode(1, methods.BASIC_CANCEL, "t", True)
        + encode(0, methods.CONNECTION_BLOCKED, "low on memory")
        + frame(methods.METHOD_FRAME, 1, b"")
    )

    assert [event[0] for event in client.events] == ["closed", "closed"]
