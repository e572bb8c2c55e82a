"""The window of an MQTT link: whatever happens to confirmations, what waits goes on, and is told of."""

from __future__ import annotations

import asyncio
from types import NoneType
from typing import TYPE_CHECKING, Any

import pytest
from paho.mqtt.client import MQTTMessageInfo
from paho.mqtt.enums import MQTTErrorCode

from canoa.broker import mqtt_sending
from canoa.broker.mqtt_sending import MqttSending
from canoa.broker.port import Message
from canoa.errors import BrokerRefusedMessage, DeliveryUnknown, Unroutable, WrongUse

if TYPE_CHECKING:
    from canoa.broker.port import PublishOutcome


class Paper:
    """A link that takes everything, and on which nobody answers before the test does."""

    def __init__(self) -> None:
        self.sent: list[int] = []

    def publish(self, *_: Any, **__: Any) -> MQTTMessageInfo:
        self.sent.append(len(self.sent) + 1)
        info = MQTTMessageInfo(self.sent[-1])
        info.rc = MQTTErrorCode.MQTT_ERR_SUCCESS
        return info


class Reason:
    def __init__(self, value: int = 0) -> None:
        self.value = value
        self.is_failure = value >= 0x80


async def test_confirmations_that_come_too_late_make_room_for_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt_sending, "CONFIRMED_WITHIN_S", 0.0)
    monkeypatch.setattr(mqtt_sending, "LOOK_EVERY_S", 0.0)
    link = Paper()
    outcomes: list[PublishOutcome] = []
    sending = MqttSending(link, is_old=True, at_once=2)  # type: ignore[arg-type]  # what is used of it
    for _ in range(3):
        sending.post(["town/news"], Message(body=b""), outcomes.append, qos=1)
    while len(outcomes) < 2:  # noqa: ASYNC110  # its own timer does it
        await asyncio.sleep(0)

    for number in (1, 2):
        sending.on_confirmed(number, Reason())

    assert link.sent == [1, 2, 3]
    assert [type(each) for each in outcomes] == [DeliveryUnknown, DeliveryUnknown]


async def test_what_the_library_cannot_pack_is_told_of_and_the_others_go_on() -> None:
    outcomes: list[PublishOutcome] = []
    told = asyncio.Event()

    def on_outcome(outcome: PublishOutcome) -> None:
        outcomes.append(outcome)
        told.set()

    class Struct(Paper):
        def publish(self, *_: Any, **__: Any) -> MQTTMessageInfo:
            import struct

            raise struct.error("'H' format requires 0 <= number <= 65535")

    sending = MqttSending(Struct(), is_old=True)  # type: ignore[arg-type]
    sending.post(["town/news"], Message(body=b""), on_outcome, qos=1)
    await asyncio.wait_for(told.wait(), 5)

    assert isinstance(outcomes[0], WrongUse)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ((0, 0), NoneType),
        ((0x10, 0), NoneType),
        ((0, 0x10), NoneType),
        ((0x10, 0x10), Unroutable),
        ((0x10, 0x80), BrokerRefusedMessage),
        ((0x80, 0), BrokerRefusedMessage),
    ],
)
async def test_a_message_is_unroutable_where_nobody_has_subscribed_to_any_of_its_topics(
    said: tuple[int, int], told: type
) -> None:
    outcomes: list[PublishOutcome] = []
    sending = MqttSending(Paper(), is_old=False)  # type: ignore[arg-type]  # what is used of it
    sending.post(["town.news", "town/news"], Message(body=b""), outcomes.append, qos=1)

    for number, value in enumerate(said, start=1):
        sending.on_confirmed(number, Reason(value))

    assert [type(each) for each in outcomes] == [told]
    sending.close()
