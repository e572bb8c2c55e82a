"""Devices that vanish and return, a thousand times, while they have work: every task ends, with one result."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import aiomqtt
import pytest
from tests.acceptance.plant import WITHIN_S, Plant

from canoa.action import Options

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit

    from canoa.client.handle import Handle
    from canoa.testing import MosquittoNode

DEVICES = 4
TIMES_EACH = 250
TASKS = 200
ACTION = "urn:sapparchi:Action:device.double"
ROUTED = Options(dispatch="routed", timeout=600)


class Device:
    """By the published wire alone, on MQTT 3.1.1, with a session that outlives its links. It acknowledges what it has
    answered: the rest comes again. `runs`: what it did, by request."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.runs: dict[str, int] = {}
        self.vanished = 0
        self._port = port

    async def appear(self, *, for_messages: int) -> None:
        """Take so many messages, or as many as come soon, answer them, and vanish in the middle of it."""
        client = aiomqtt.Client("127.0.0.1", self._port, identifier=self.name, clean_session=False)
        client._client.manual_ack_set(True)
        with suppress(aiomqtt.MqttError):
            async with client:
                await client.subscribe(f"sapparchi/node/{self.name}/in", qos=1)
                await self._register(client)
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.02 if self.vanished % 10 else 0.3):
                        await self._work(client, for_messages)
                await _torn(client)
        self.vanished += 1

    async def _register(self, client: aiomqtt.Client) -> None:
        said = {"nodeId": self.name, "endpoint": self.name, "layer": "EDGE", "type": "bare", "actions": [ACTION]}
        await client.publish("sapparchi/nodes/register", json.dumps({**said, "forceRegister": False}), qos=1)

    async def _work(self, client: aiomqtt.Client, for_messages: int) -> None:
        taken = 0
        async for came in client.messages:
            message = json.loads(bytes(came.payload))
            self.runs[message["requestID"]] = self.runs.get(message["requestID"], 0) + 1
            number = json.loads(message["messageData"])["number"]
            answer = {**message, "messageData": json.dumps({"doubled": 2 * number})}
            await client.publish("sapparchi/task/handler/saida", json.dumps(answer), qos=1)
            client._client.ack(came.mid, came.qos)
            taken += 1
            if taken == for_messages or _is_over():
                return


def _is_over() -> bool:
    """Its time was: Python 3.11 forgets that where it ends in the same moment as what `publish` waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _torn(client: aiomqtt.Client) -> None:
    """No farewell: as when the power goes."""
    link = client._client.socket()
    assert isinstance(link, socket.socket)
    link.shutdown(socket.SHUT_RDWR)
    with suppress(TimeoutError, aiomqtt.MqttError):  # now and then its library does not notice
        await asyncio.wait_for(asyncio.shield(client._disconnected), timeout=1)


async def is_known(plant: Plant, name: str) -> bool:
    return name in await plant.nodes()


async def submitted(plant: Plant, devices: list[Device]) -> dict[int, Handle[Any]]:
    """All tasks, each by its number: one for every few times that a device vanished."""
    handles: dict[int, Handle[Any]] = {}
    for number in range(TASKS):
        body = b'{"number": %d}' % number
        handles[number] = await plant.app.submit_raw("device.double", body, options=ROUTED)
        while sum(device.vanished for device in devices) < number * 4:  # noqa: ASYNC110  # they do it
            await asyncio.sleep(0.01)
    return handles


async def vanish_and_return(device: Device, is_over: asyncio.Event) -> None:
    while device.vanished < TIMES_EACH or not is_over.is_set():
        await device.appear(for_messages=2)


@pytest.mark.rabbitmq
@pytest.mark.timeout(300)
async def test_devices_vanish_and_return_a_thousand_times_and_every_task_ends_once(
    tmp_path: Path, rabbit: Rabbit, mosquitto: MosquittoNode
) -> None:
    devices = [Device(f"meter-{number}", mosquitto.port) for number in range(DEVICES)]
    async with Plant(tmp_path, rabbit) as plant:
        await plant.manager(CANOA_MQTT=mosquitto.url)
        for device in devices:
            while not await is_known(plant, device.name):  # until a manager listens
                await device.appear(for_messages=1)

        is_over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for device in devices:
                group.create_task(vanish_and_return(device, is_over))
            handles = await submitted(plant, devices)
            results = {number: await handle.result(WITHIN_S) for number, handle in handles.items()}
            is_over.set()

    assert results == {number: {"doubled": 2 * number} for number in range(TASKS)}
    assert all(device.vanished >= TIMES_EACH for device in devices)
    assert all(device.runs for device in devices)
