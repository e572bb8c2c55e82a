"""What waits for a device that is away, and for how long: at RabbitMQ in its subscription's queue, at an MQTT broker of
its own in its session."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from tests.integration.mqtt.device import Device

from canoa.action import Options
from canoa.errors import ActionTimedOut

if TYPE_CHECKING:
    from tests.integration.dispatch.site import Site
    from tests.integration.mqtt.town import Town

WAIT_S = TRAVEL_S = SHORT_S = 0.5
LAPSES_S = WAIT_S + TRAVEL_S + SHORT_S
MARGIN_S = 1.5
"""Over MQTT, times are told, and looked at, in whole seconds."""

pytestmark = pytest.mark.rabbitmq


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANOA_STEP_WAIT_S", str(WAIT_S))
    monkeypatch.setenv("CANOA_STEP_TRAVEL_S", str(TRAVEL_S))


def of(number: int) -> bytes:
    return json.dumps({"number": number}).encode()


async def test_a_device_that_returns_gets_what_is_still_wanted_and_nothing_that_lapsed_while_it_was_away(
    town: Town, site: Site
) -> None:
    await site.start_manager()
    device = Device(town, "meter-1")
    async with device.listening():
        await device.join()

    async with site.app as app:
        short = Options(dispatch="routed", retry=0, timeout=SHORT_S)
        lapsed = await app.submit_raw("shell.double", of(1), options=short)
        with pytest.raises(ActionTimedOut):
            await lapsed.result(20)
        await asyncio.sleep(LAPSES_S + MARGIN_S)  # whatever is left of its time at the broker
        fresh = await app.submit_raw("shell.double", of(2), options=Options(dispatch="routed", retry=0, timeout=30))
        async with device.listening():
            message = await device.ear.hears(device.inbox)
            assert json.loads(message["messageData"]) == {"number": 2}
            await device.answer(message)
            assert await fresh.result(20) == {"doubled": 4}

    assert device.ear.all(device.inbox) == [message]
