"""A bundle is read as it was packed; whatever else claims to be one is refused, and harms nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.broker.port import Message
from canoa.errors import PayloadTooLarge, Undecodable
from canoa.wire import bundle

GOLDEN = Path(__file__).parents[2] / "golden" / "bundle" / "two.msgpack"

STEP = Message(
    body=b'{"actionTo":"urn:sapparchi:Action:shop.resize","requestID":"0192.0.1.1","messageData":"{}"}',
    content_type="application/json",
    headers={"nodeId": "gw-7", "canoa-owner": "manager", "canoa-attempt": 2, "canoa-no-retry": True, "load": 0.5},
    persistent=False,
    expiration_s=3600.0,
    message_id="0192.0.1.1",
)
RESULT = Message(
    body=b"\x00\xff",
    content_type="application/json",
    content_encoding="zstd",
    correlation_id="0192",
    reply_to="canoa.reply.1",
    message_id="0192",
    priority=7,
    timestamp_s=1_763_237_730,
    type="ok",
    app_id="açaí",
)


def packed(*messages: Message) -> Message:
    [(message, count)] = bundle.packed(messages)
    assert count == len(messages)
    return message


def fields(messages: Any) -> list[dict[str, Any]]:
    return [msgspec.structs.asdict(each) for each in messages]


def claiming(body: bytes, **properties: Any) -> Message:
    return Message(body=body, content_type=bundle.CONTENT_TYPE, **properties)


def of(*parts: Any) -> Message:
    return claiming(msgspec.msgpack.encode(parts))


def test_bundles_are_written_and_read_as_ever() -> None:
    golden = GOLDEN.read_bytes()

    assert packed(STEP, RESULT).body == golden
    assert fields(bundle.parts(claiming(golden))) == fields([STEP, RESULT])


_short = st.none() | st.text(st.characters(codec="utf-8"), max_size=255)
_values = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=50)
)
_messages = st.builds(
    Message,
    body=st.binary(max_size=2_000),
    content_type=_short,
    content_encoding=_short,
    headers=st.dictionaries(st.text(max_size=20), _values, max_size=4),
    persistent=st.booleans(),
    priority=st.none() | st.integers(0, 255),
    correlation_id=_short,
    reply_to=_short,
    expiration_s=st.none() | st.floats(0, bundle.MAX_TTL_S),
    message_id=_short,
    timestamp_s=st.none() | st.integers(0, 2**53),
    type=_short,
    app_id=_short,
)


@given(st.lists(_messages, min_size=1, max_size=300))
def test_what_was_packed_comes_out_in_order(messages: list[Message]) -> None:
    found: list[Message] = []
    for message, count in bundle.packed(messages):
        parts = [message] if count == 1 else bundle.parts(message)
        assert len(parts) == count
        found += parts

    assert fields(found) == fields(messages)


@given(st.binary(max_size=300) | st.builds(lambda head, rest: head + rest, st.just(b"\x92"), st.binary(max_size=300)))
def test_garbage_is_refused(body: bytes) -> None:
    with pytest.raises(Undecodable):
        bundle.parts(claiming(body))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x90",  # of nothing
        b"\xdd\xff\xff\xff\xff",  # of four billion parts, it says
        b"\x91" * 100_000,  # nested
        b"\x91\x81\xa7headers" + b"\x81\xa1a" * 50_000 + b"\xc0",
        msgspec.msgpack.encode([{}]),
        msgspec.msgpack.encode([{"body": "text"}]),
        msgspec.msgpack.encode([{"body": b"", "headers": {"deep": {"er": 1}}}]),
        msgspec.msgpack.encode([{"body": b"", "headers": {"raw": b"bytes"}}]),
        msgspec.msgpack.encode([{"body": b"", "headers": {1: "a number for a name"}}]),
        msgspec.msgpack.encode([{"body": b"", "headers": None}]),
        msgspec.msgpack.encode([{"body": b"", "headers": {"huge": 2**63}}]),
        msgspec.msgpack.encode([{"body": b"", "headers": {"x" * 256: 1}}]),
        msgspec.msgpack.encode([{"body": b"", "persistent": 1}]),
        msgspec.msgpack.encode([{"body": b"", "priority": 256}]),
        msgspec.msgpack.encode([{"body": b"", "message_id": "x" * 256}]),
        msgspec.msgpack.encode([{"body": b"", "expiration_s": float("inf")}]),
        msgspec.msgpack.encode([{"body": b"", "expiration_s": float("nan")}]),
        msgspec.msgpack.encode([{"body": b"", "expiration_s": -1.0}]),
        msgspec.msgpack.encode([{"body": b""}]) + b"and more",
        msgspec.json.encode([{"body": ""}]),
    ],
)
def test_what_is_no_bundle_is_refused(body: bytes) -> None:
    with pytest.raises(Undecodable):
        bundle.parts(claiming(body))


def test_a_bundle_in_a_bundle_is_refused() -> None:
    with pytest.raises(Undecodable, match="holds a bundle"):
        bundle.parts(of(STEP, packed(STEP, STEP)))


def test_more_parts_than_a_bundle_may_have_are_refused() -> None:
    with pytest.raises(Undecodable):
        bundle.parts(of(*[Message(body=b"")] * (bundle.MAX_PARTS + 1)))


def test_more_bytes_than_a_bundle_may_have_are_refused() -> None:
    with pytest.raises(PayloadTooLarge):
        bundle.parts(of(Message(body=b"x" * bundle.MAX_BYTES)))


def test_a_compressed_bundle_is_refused_and_not_unpacked() -> None:
    with pytest.raises(Undecodable, match="compressed"):
        bundle.parts(claiming(packed(STEP, STEP).body, content_encoding="zstd"))


def test_one_message_stays_as_it_is() -> None:
    assert bundle.packed([STEP]) == [(STEP, 1)]
    assert bundle.packed([]) == []


def test_many_messages_fill_one_bundle_after_the_other() -> None:
    assert [count for _, count in bundle.packed([STEP] * (2 * bundle.MAX_PARTS + 3))] == [128, 128, 3]


@pytest.mark.parametrize(
    "misfit",
    [
        Message(body=b"x" * bundle.MAX_BYTES),
        Message(body=b"", headers={"table": {"a": 1}}),
        Message(body=b"", headers={"raw": b"\x00"}),
        Message(body=b"", headers={"huge": 2**70}),
        Message(body=b"", headers={"large": 2**63}),
        Message(body=b"", headers={"x" * 256: 1}),
        Message(body=b"", headers={"half": "\ud800"}),
        Message(body=b"", type="x" * 256),
        claiming(b""),
    ],
    ids=["large", "table", "bytes", "integer", "unsigned", "header", "surrogate", "name", "bundle"],
)
def test_what_fits_in_no_bundle_travels_alone_and_its_neighbours_together(misfit: Message) -> None:
    found = bundle.packed([STEP, STEP, misfit, STEP, STEP, STEP])

    assert (misfit, 1) in found
    assert sum(count for _, count in found) == 6
    assert any(count > 1 for _, count in found)


def test_a_bundle_is_never_larger_than_may_be_read() -> None:
    large = [Message(body=b"x" * 50_000, headers={"traceback": "y" * 8_000})] * 20

    found = bundle.packed(large)

    assert all(len(message.body) <= bundle.MAX_BYTES for message, _ in found)
    assert len(found) < 20


@pytest.mark.parametrize(
    ("persistent", "ttls_s", "expected"),
    [
        ([False, False], [1.0, 3.0], (False, 3.0)),
        ([False, True], [1.0, None], (True, None)),
    ],
)
def test_a_bundle_is_kept_as_well_and_as_long_as_the_most_demanding_of_its_parts(
    persistent: list[bool], ttls_s: list[float | None], expected: tuple[bool, float | None]
) -> None:
    made = packed(
        *(
            Message(body=b"", persistent=is_kept, expiration_s=ttl_s)
            for is_kept, ttl_s in zip(persistent, ttls_s, strict=True)
        )
    )

    assert (made.persistent, made.expiration_s) == expected
    assert made.message_id
