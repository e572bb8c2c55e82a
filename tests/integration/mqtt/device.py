"""A device on MQTT that uses one spelling of every name, and does as it is told by a test."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from canoa.broker import topology
from canoa.urn import ACTION_PREFIX
from canoa.wire.topics import node_topics, spellings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.mqtt.town import Ear, Town

DOUBLE = f"{ACTION_PREFIX}shell.double"
DOTTED, SLASHED = 0, 1


class Device:
    """What it hears of managers it hears only while it is `listening`; what is sent to it, by a session."""

    ear: Ear

    def __init__(self, town: Town, node_id: str, spelling: int = SLASHED) -> None:
        self.id = node_id
        self.inbox = node_topics(node_id)[DOTTED]
        self._town = town
        self._spelling = spelling

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        heard = (topology.MANAGER_AVAILABLE, topology.NODES_ACK, topology.FINAL_RESULTS)
        topics = [*map(self._spelt, heard), node_topics(self.id)[self._spelling]]
        async with self._town.ear(*topics, session=self.id) as self.ear:
            yield

    def _spelt(self, name: str) -> str:
        return spellings(name)[self._spelling]

    async def say(self, name: str, body: Any) -> None:
        await self._town.say(self._spelt(name), body)

    async def join(self) -> Any:
        """Return with its welcome. It asks again, as long as nobody listens yet."""
        said = {"nodeId": self.id, "endpoint": self.id, "layer": "EDGE", "type": "shell", "actions": [DOUBLE]}
        while True:
            await self.say(topology.NODES_REGISTER, {**said, "forceRegister": False})
            with suppress(TimeoutError):
                return await self.ear.hears(topology.NODES_ACK, within_s=2.0)

    async def asks(self, task_id: str, number: int) -> None:
        """For what it does itself."""
        request = {"id": task_id, "target_actions": [DOUBLE], "message_data": json.dumps({"number": number})}
        await self.say(topology.TASK_REQUESTS, request)

    async def answer(self, message: Any, name: str = topology.STEP_RESULTS) -> None:
        doubled = {"doubled": 2 * json.loads(message["messageData"])["number"]}
        await self.say(name, {**message, "messageData": json.dumps(doubled)})
