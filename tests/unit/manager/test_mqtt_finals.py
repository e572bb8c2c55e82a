"""What becomes of a final result that is to be told at an MQTT broker, by how that went."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from canoa.broker import topology
from canoa.broker.direct import DirectDelivery
from canoa.broker.port import Message, Settlement
from canoa.errors import BrokerRefusedMessage, BrokerUnreachable, DeliveryUnknown, Unroutable
from canoa.manager import mqtt_finals
from canoa.manager.mqtt_finals import MqttFinals
from canoa.wire import sapparchi

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.port import PublishOutcome

ENDED = Message(body=b"{}", headers={sapparchi.STATUS: "ok"})


class Mqtt:
    """Says at once how it went."""

    def __init__(self, outcome: PublishOutcome) -> None:
        self.told: list[tuple[str, Message]] = []
        self._outcome = outcome

    def tell_confirmed(self, name: str, message: Message, on_outcome: Callable[[PublishOutcome], None]) -> None:
        self.told.append((name, message))
        on_outcome(self._outcome)


async def settled(mqtt: Mqtt, message: Message = ENDED) -> Settlement:
    future: asyncio.Future[Settlement] = asyncio.get_running_loop().create_future()
    MqttFinals(mqtt).on_delivery(DirectDelivery(message, future.set_result))
    return await asyncio.wait_for(future, 5)


@pytest.mark.parametrize("outcome", [None, Unroutable("nobody"), BrokerRefusedMessage("no")])
async def test_what_the_broker_has_answered_for_is_told(outcome: PublishOutcome) -> None:
    mqtt = Mqtt(outcome)

    assert await settled(mqtt) is Settlement.ACK
    assert mqtt.told == [(topology.FINAL_RESULTS, ENDED)]


@pytest.mark.parametrize("outcome", [BrokerUnreachable("away"), DeliveryUnknown("cut")])
async def test_what_it_may_not_have_goes_back_after_a_while_to_whoever_has_a_link(
    outcome: PublishOutcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_finals, "REPEAT_AFTER_S", 0.01)

    assert await settled(Mqtt(outcome)) is Settlement.REQUEUE


async def test_what_came_from_mqtt_is_not_told_there_again() -> None:
    mqtt = Mqtt(None)

    assert await settled(mqtt, Message(body=b"{}", headers={sapparchi.BY_MQTT: 1})) is Settlement.ACK
    assert mqtt.told == []


async def test_a_broker_that_refuses_them_is_complained_of_once(caplog: pytest.LogCaptureFixture) -> None:
    finals = MqttFinals(Mqtt(BrokerRefusedMessage("not authorized")))

    for _ in range(3):
        finals.on_delivery(DirectDelivery(ENDED, lambda _: None))

    assert caplog.text.count("final_result_not_told") == 1
