"""However the bytes arrive, and however frames of several channels mix, the same things are heard."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.amqp.client import Client, opened
from tests.unit.amqp.strategies import messages, pieces

from canoa.broker.amqp import content, methods
from canoa.broker.amqp.methods import encode
from canoa.broker.port import Message, Publication

FRAME_MAX = 4096
ROOM = FRAME_MAX - 8


def frames_of(stream: bytes) -> list[bytes]:
    frames = []
    while stream:
        (size,) = struct.unpack_from(">I", stream, 3)
        frames.append(stream[: size + 8])
        stream = stream[size + 8 :]
    return frames


def content_frames(number: int, message: Message) -> list[bytes]:
    """Header and body, as the broker sends them."""
    publication = Publication(message=message, key="")
    return frames_of(content.publish_frames(number, publication, FRAME_MAX))[1:]


def delivery(number: int, tag: int, message: Message) -> tuple[list[bytes], tuple[Any, ...]]:
    method = encode(number, methods.BASIC_DELIVER, "tag", tag, False, "ex", "key")
    return [method, *content_frames(number, message)], ("deliver", number, tag, False, "ex", "key", message)


def returned(number: int, message: Message) -> tuple[list[bytes], tuple[Any, ...]]:
    method = encode(number, methods.BASIC_RETURN, 312, "NO_ROUTE", "", "gone")
    return [method, *content_frames(number, message)], ("return", number, "NO_ROUTE", "", "gone", message)


def confirmed(number: int, tag: int, multiple: bool, is_taken: bool) -> tuple[list[bytes], tuple[Any, ...]]:
    if is_taken:
        frame = encode(number, methods.BASIC_ACK, tag, multiple)
    else:
        frame = encode(number, methods.BASIC_NACK, tag, multiple, False)
    return [frame], ("confirm", number, tag, multiple, is_taken)


tags = st.integers(1, 2**64 - 1)
bodies = st.sampled_from([0, 1, 100, ROOM - 1, ROOM, ROOM + 1, 3 * ROOM]).map(lambda size: Message(body=b"\xce" * size))


def happenings(number: int) -> st.SearchStrategy[tuple[list[bytes], tuple[Any, ...]]]:
    return st.one_of(
        st.builds(delivery, st.just(number), tags, messages | bodies),
        st.builds(returned, st.just(number), messages),
        st.builds(confirmed, st.just(number), tags, st.booleans(), st.booleans()),
    )


HAPPENINGS = {number: st.lists(happenings(number), max_size=3) for number in (1, 2, 3)}
"""Made once: Hypothesis would look through strategies that are new to it in every example."""


def client_with_channels(count: int) -> Client:
    client = opened(frame_max=FRAME_MAX)
    for _ in range(count):
        client.open_channel()
    return client


@given(st.data())
def test_frames_may_be_cut_anywhere_and_channels_may_mix(data: st.DataObject) -> None:
    client = client_with_channels(3)
    told = {number: data.draw(some) for number, some in HAPPENINGS.items()}
    lanes = {number: [frame for frames, _ in told[number] for frame in frames] for number in told}
    stream = b""
    while waiting := [number for number, frames in lanes.items() if frames]:
        stream += lanes[data.draw(st.sampled_from(waiting))].pop(0)
        stream += data.draw(st.sampled_from([b"", b"", methods.HEARTBEAT]))

    for piece in data.draw(pieces(stream)):
        client.connection.receive(piece)

    for number in told:
        assert [event for event in client.events if event[1] == number] == [event for _, event in told[number]]


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 4095, 4096, 4097])
def test_pieces_of_any_size_give_the_same_message(size: int) -> None:
    client = client_with_channels(1)
    frames, event = delivery(1, 1, Message(body=bytes(range(256)) * 40))
    stream = b"".join(frames) * 3

    for at in range(0, len(stream), size):
        client.connection.receive(stream[at : at + size])

    assert client.events == [event] * 3


@pytest.mark.parametrize("size", [0, 1, ROOM - 1, ROOM, ROOM + 1, 2 * ROOM, 2 * ROOM + 1, 1_000_000])
def test_a_body_takes_as_many_frames_as_it_needs(size: int) -> None:
    body = bytes(size)
    frames = frames_of(content.publish_frames(1, Publication(message=Message(body=body), key="q"), FRAME_MAX))

    parts = [frame[7:-1] for frame in frames[2:]]

    assert all(len(frame) <= FRAME_MAX for frame in frames)
    assert len(parts) == -(-size // ROOM)
    assert b"".join(parts) == body
    assert all(parts)
