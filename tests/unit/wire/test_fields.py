"""What Canoa adds survives where there is only text: HTTP's headers and the user properties of MQTT 5."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.broker.port import HeaderValue, Message
from canoa.wire import fields

NAMES = st.text(string.ascii_lowercase + "-", min_size=1, max_size=20).map(lambda name: f"canoa-x-{name}")
NUMBERS = st.integers(-(10**17), 10**17)
SHARES = st.integers(-(10**9), 10**9).map(lambda number: number / 1000)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=200)


@given(st.dictionaries(NAMES, st.one_of(TEXTS, NUMBERS, st.booleans(), SHARES), max_size=20), TEXTS.filter(bool))
def test_headers_and_ids_come_out_as_they_went_in(headers: dict[str, HeaderValue], message_id: str) -> None:
    message = Message(body=b"{}", headers=headers, message_id=message_id[:60], content_type="application/json")

    spelt = fields.http_headers(message)
    read = fields.read(b"{}", [(name.title(), value) for name, value in spelt.items()])

    assert read.headers == headers
    assert (read.message_id, read.content_type) == (message.message_id, "application/json")
    assert all(value.isascii() and value.isprintable() for value in spelt.values())


@given(st.dictionaries(st.text(max_size=30), st.text(max_size=100), max_size=20))
def test_whatever_a_stranger_writes_is_read_without_an_error(given_fields: dict[str, str]) -> None:
    read = fields.read(b"", given_fields.items())

    assert all(name.startswith("canoa-") or name in fields.OTHERS for name in read.headers)


@pytest.mark.parametrize(
    ("written", "meant"),
    [("true", True), ("?0", False), ("7", 7), ("0.25", 0.25), ("natal", "natal"), ('"7"', "7"), ("", "")],
)
def test_bare_words_are_understood(written: str, meant: HeaderValue) -> None:
    assert fields.read(b"", [("Canoa-Site", written)]).headers == {"canoa-site": meant}


def test_a_trace_travels_as_whoever_stands_in_between_knows_it() -> None:
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    assert ("traceparent", traceparent) in fields.spelt(Message(body=b"", headers={"traceparent": traceparent}))


def test_what_is_not_ours_stays_out() -> None:
    message = Message(body=b"", headers={"nodeId": "gw-7", "x-death": "3", "canoa-owner": "manager"})

    assert fields.spelt(message) == [("canoa-owner", '"manager"')]


def test_a_field_that_is_too_long_for_mqtt_stays_away_and_the_others_travel() -> None:
    message = Message(body=b"", headers={"canoa-traceback": "语" * 8_000, "canoa-status": "failed"})

    assert fields.spelt(message) == [("canoa-status", '"failed"')]


def test_what_a_broker_made_headers_of_reads_as_it_was_meant() -> None:
    spelt: dict[str, HeaderValue] = {
        "canoa-status": '"ok"',
        "canoa-canary": "?1",
        "x-mqtt-publish-qos": 1,
        "content-encoding": "gzip",
    }

    read = fields.unspelt(Message(body=b"", headers=spelt))

    assert read.headers == {"canoa-status": "ok", "canoa-canary": True, "x-mqtt-publish-qos": 1}
    assert read.content_encoding == "gzip"
