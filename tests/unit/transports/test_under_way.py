"""What is out by ways that brokers keep: found by node and way, forgotten when it ended, and never without bound."""

from __future__ import annotations

import pytest

from canoa.broker.port import Message
from canoa.transports import under_way
from canoa.transports.under_way import KEPT_S, Place, UnderWay
from canoa.vocabulary import AMQP, MQTT_LINK, NodeId

GATEWAY, OTHER = NodeId("gw-7"), NodeId("gw-8")


def asking(*ids: str, body: bytes = b"", expires_s: float | None = None) -> list[Message]:
    return [Message(body=body, message_id=each, expiration_s=expires_s) for each in ids]


def test_what_is_out_is_found_by_its_node_and_its_way() -> None:
    sent = UnderWay()
    sent.put(Place(GATEWAY, AMQP), asking("a", "b"), 0.0)
    sent.put(Place(OTHER, MQTT_LINK), asking("c"), 0.0)

    assert sorted(sent.places()) == [Place(GATEWAY, AMQP), Place(OTHER, MQTT_LINK)]
    assert list(sent.at(Place(GATEWAY, AMQP))) == ["a", "b"]


def test_what_goes_by_another_way_is_no_longer_at_the_first() -> None:
    sent = UnderWay()
    sent.put(Place(GATEWAY, AMQP), asking("a"), 0.0)

    sent.put(Place(GATEWAY, MQTT_LINK), asking("a"), 1.0)

    assert sent.places() == [Place(GATEWAY, MQTT_LINK)]
    assert len(sent) == 1


def test_what_ended_is_forgotten_and_what_was_never_there_is_no_trouble() -> None:
    sent = UnderWay()
    sent.put(Place(GATEWAY, AMQP), asking("a", "b"), 0.0)

    sent.drop(["a", "b", "c"])

    assert not sent
    assert sent.places() == []


def test_the_oldest_give_way_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_way, "MAX_MESSAGES", 2)
    sent = UnderWay()

    sent.put(Place(GATEWAY, AMQP), asking("a", "b", "c"), 0.0)

    assert list(sent.at(Place(GATEWAY, AMQP))) == ["b", "c"]


def test_the_oldest_give_way_where_they_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_way, "MAX_BYTES", 10)
    sent = UnderWay()

    sent.put(Place(GATEWAY, AMQP), asking("a", "b", body=b"12345678"), 0.0)
    sent.drop(["b"])
    sent.put(Place(GATEWAY, AMQP), asking("c", body=b"12345678"), 0.0)

    assert list(sent.at(Place(GATEWAY, AMQP))) == ["c"]


@pytest.mark.parametrize(("expires_s", "kept_s"), [(None, KEPT_S), (5.0, 5.0)])
def test_what_nobody_waits_for_any_more_is_forgotten(expires_s: float | None, kept_s: float) -> None:
    sent = UnderWay()
    sent.put(Place(GATEWAY, AMQP), asking("a", expires_s=expires_s), 0.0)

    sent.put(Place(GATEWAY, AMQP), asking("b"), kept_s - 0.01)
    assert len(sent) == 2
    sent.put(Place(GATEWAY, AMQP), asking("c"), kept_s)

    assert list(sent.at(Place(GATEWAY, AMQP))) == ["b", "c"]
