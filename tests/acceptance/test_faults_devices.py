"""Devices that vanish and return, a thousand times, while they have work: every task ends, with one result."""

from __future__ import annotations

import asyncio
import enum
import json
import socket
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import aiomqtt
import pytest
from tests.acceptance.plant import WITHIN_S, Plant, counted, has_counted, until_true

from canoa.action import Options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit
    from tests.acceptance.shell import Process

    from canoa.client.handle import Handle
    from canoa.testing import MosquittoNode

DEVICES = 4
TIMES_EACH = 250
TIMES_A_TASK = 4
ACTION = "urn:sapparchi:Action:device.double"
ROUTED = Options(dispatch="routed", timeout=600)
TAKEN = 'canoa_step_results_total{verdict="taken"}'
CHANGED_NOTHING = 'canoa_step_results_total{verdict="(?:late|double)"}'
ANSWERS = 'canoa_step_results_total{verdict="(?:taken|late|double)"}'
QOS = 1


class Login(NamedTuple):
    """At an MQTT broker."""

    port: int
    username: str | None = None
    password: str | None = None


class Moment(enum.IntEnum):
    """In the middle of its work, when it vanishes: one after the other, so a message takes it three runs."""

    UNANSWERED = 0
    UNACKNOWLEDGED = 1  # the broker has the answer, and does not know to what
    ACKNOWLEDGED = 2


class Device:
    """By the published wire alone, on MQTT 3.1.1, with a session that outlives its links. It acknowledges what it has
    answered: the rest comes again. `runs`: what it did, by request. `told`: answers that its broker has for sure."""

    def __init__(self, name: str, login: Login) -> None:
        self.name = name
        self.runs: Counter[str] = Counter()
        self.told = 0
        self.vanished = 0  # after its subscription was granted
        self.at_work = 0  # so often
        self._login = login

    async def appear(self) -> None:
        """Take a message, if one comes soon, and vanish in the middle of it."""
        client = self._new_client()
        is_there = False
        with suppress(aiomqtt.MqttError):
            async with client:
                codes = await client.subscribe(f"sapparchi/node/{self.name}/in", qos=QOS)
                is_there = [getattr(code, "value", code) for code in codes] == [QOS]
                assert is_there, codes
                await self._register(client)
                with suppress(TimeoutError):
                    await self._work(client, within_s=0.02 if self.vanished % 10 else 0.3)
                await _torn(client)
        self.vanished += is_there

    def _new_client(self) -> aiomqtt.Client:
        client = aiomqtt.Client(
            "127.0.0.1",
            self._login.port,
            username=self._login.username,
            password=self._login.password,
            identifier=self.name,
            clean_session=False,
        )
        client._client.manual_ack_set(True)
        return client

    async def _register(self, client: aiomqtt.Client) -> None:
        said = {"nodeId": self.name, "endpoint": self.name, "layer": "EDGE", "type": "bare", "actions": [ACTION]}
        await client.publish("sapparchi/nodes/register", json.dumps({**said, "forceRegister": False}), qos=QOS)

    async def _work(self, client: aiomqtt.Client, *, within_s: float) -> None:
        came = await asyncio.wait_for(anext(aiter(client.messages)), within_s)
        message, moment = json.loads(bytes(came.payload)), Moment(self.at_work % len(Moment))
        self.runs[message["requestID"]] += 1
        self.at_work += 1
        if moment is not Moment.UNANSWERED:
            await self._answer(client, message)
        if moment is Moment.ACKNOWLEDGED:
            client._client.ack(came.mid, came.qos)
            while client._client.want_write():  # noqa: ASYNC110  # its library tells nobody
                await asyncio.sleep(0)

    async def _answer(self, client: aiomqtt.Client, message: dict[str, Any]) -> None:
        number = json.loads(message["messageData"])["number"]
        answer = {**message, "messageData": json.dumps({"doubled": 2 * number})}
        await client.publish("sapparchi/task/handler/saida", json.dumps(answer), qos=QOS)
        self.told += 1


async def _torn(client: aiomqtt.Client) -> None:
    """No farewell: as when the power goes."""
    link = client._client.socket()
    assert isinstance(link, socket.socket)
    link.shutdown(socket.SHUT_RDWR)
    with suppress(TimeoutError, aiomqtt.MqttError):  # now and then its library does not notice
        await asyncio.wait_for(asyncio.shield(client._disconnected), timeout=1)


async def is_known(plant: Plant, name: str) -> bool:
    return name in await plant.nodes()


async def submitted(plant: Plant, devices: Sequence[Device], tasks: int) -> dict[int, Handle[Any]]:
    """All tasks, each by its number: one for every few times that a device vanished."""
    handles: dict[int, Handle[Any]] = {}
    for number in range(tasks):
        body = b'{"number": %d}' % number
        handles[number] = await plant.app.submit_raw("device.double", body, options=ROUTED)
        while sum(device.vanished for device in devices) < number * TIMES_A_TASK:  # noqa: ASYNC110  # they do it
            await asyncio.sleep(0.01)
    return handles


async def vanish_and_return(device: Device, is_over: asyncio.Event) -> None:
    while not is_over.is_set():
        await device.appear()


async def until_vanished(devices: Sequence[Device], times_each: int) -> None:
    while any(device.vanished < times_each for device in devices):  # noqa: ASYNC110  # they do it
        await asyncio.sleep(0.01)


async def every_task_ends_once(plant: Plant, manager: Process, logins: Sequence[Login], *, times_each: int) -> None:
    """While devices vanish and return: as many as there are logins."""
    devices = [Device(f"meter-{number}", login) for number, login in enumerate(logins)]
    tasks = len(devices) * times_each // (TIMES_A_TASK + 1)
    for device in devices:
        while not await is_known(plant, device.name):  # until a manager listens
            await device.appear()

    is_over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for device in devices:
            group.create_task(vanish_and_return(device, is_over))
        try:
            handles = await submitted(plant, devices, tasks)
            results = {number: await handle.result(WITHIN_S) for number, handle in handles.items()}
            await until_vanished(devices, times_each)
        finally:
            is_over.set()  # its client may swallow that a device is cancelled
    told = sum(device.told for device in devices)
    await until_true(lambda: has_counted(manager, ANSWERS, told))

    assert results == {number: {"doubled": 2 * number} for number in range(tasks)}
    await plant.every_task_has_one_end({handle.id for handle in handles.values()})
    assert all(device.vanished >= times_each and device.at_work for device in devices)
    runs = sum(device.runs.total() for device in devices)
    taken, changed_nothing = await counted(manager, TAKEN), await counted(manager, CHANGED_NOTHING)
    print(f"{tasks} tasks, {runs} runs, {told} told, {changed_nothing:g} of them changed nothing")
    assert runs >= told > tasks
    assert taken == tasks
    assert told - tasks <= changed_nothing <= runs - tasks  # every run too many, but for what was never told


@pytest.mark.rabbitmq
@pytest.mark.timeout(300)
async def test_devices_vanish_and_return_a_thousand_times_and_every_task_ends_once_and_each_run_too_many_is_counted(
    tmp_path: Path, rabbit: Rabbit, mosquitto: MosquittoNode
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.manager(CANOA_MQTT=mosquitto.url)

        await every_task_ends_once(plant, manager, DEVICES * [Login(mosquitto.port)], times_each=TIMES_EACH)
