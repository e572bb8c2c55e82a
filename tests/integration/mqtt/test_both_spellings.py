"""The published names over MQTT: whoever uses one spelling of them alone takes part in everything, on either broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.integration.mqtt.device import DOTTED, DOUBLE, SLASHED, Device

from canoa.broker import topology
from canoa.wire.sapparchi import BY_MQTT
from canoa.wire.task import DEADLINE

if TYPE_CHECKING:
    from tests.integration.dispatch.site import Site
    from tests.integration.mqtt.town import Town

    from canoa.broker.port import HeaderValue


@pytest.mark.rabbitmq
@pytest.mark.parametrize("spelling", [DOTTED, SLASHED], ids=["dotted", "slashed"])
async def test_a_device_of_one_spelling_joins_is_welcomed_hears_managers_works_asks_and_hears_how_it_ended(
    town: Town, site: Site, spelling: int
) -> None:
    await site.start_manager()
    device = Device(town, "meter-1", spelling)
    async with device.listening():
        welcome = await device.join()
        assert (welcome["nodeId"], welcome["actions"]) == ("meter-1", [DOUBLE])
        heartbeat = await device.ear.hears(topology.MANAGER_AVAILABLE)
        assert (heartbeat["available"], heartbeat["schema"]) == (True, 1)

        for count, name in enumerate([topology.STEP_RESULTS, topology.STEP_RESULTS_OLD], start=1):
            await device.asks(f"order-{count}", count)
            message = await device.ear.hears(device.inbox, count)
            assert json.loads(message["messageData"]) == {"number": count}
            await device.answer(message, name)

            final = await device.ear.hears(topology.FINAL_RESULTS, count)
            assert (final["actionTo"], final["requestID"]) == (DOUBLE, f"order-{count}")
            assert json.loads(final["messageData"]) == {"doubled": 2 * count}


@pytest.mark.rabbitmq
async def test_whoever_asks_for_what_cannot_be_hears_that_too(town: Town, site: Site) -> None:
    await site.start_manager()
    device = Device(town, "meter-1")
    async with device.listening():
        await device.join()  # so somebody listens

        await device.say(topology.TASK_REQUESTS, {"id": "order-1"})

        final = await device.ear.hears(topology.FINAL_RESULTS)
        assert (final["id"], final["status"]) == ("order-1", "refused")


async def test_what_a_client_of_mqtt_5_says_beside_its_request_is_read_as_it_was_meant(memory_site: Site) -> None:
    manager = await memory_site.start_manager()
    await memory_site.start_node("gw-1", manager, inc=lambda value: value + 1)
    by_plugin: dict[str, HeaderValue] = {
        BY_MQTT: 1,
        DEADLINE: str(4 * 10**12),
    }  # user properties are texts, and RabbitMQ leaves them so

    task_id = await memory_site.request("inc", data=1, headers=by_plugin)

    assert await memory_site.result(task_id) == 2
