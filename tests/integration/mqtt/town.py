"""Clients that know MQTT and the published wire, and nothing else: mosquitto's own. And the brokers that they use."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from asyncio.subprocess import PIPE
from collections import Counter
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import quote, urlsplit

from canoa.testing.ports import LOOPBACK
from canoa.wire.topics import name_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from canoa.testing import MosquittoNode, RabbitNode

WITHIN_S = 30.0
PASSWORD = "guest"
UNBUFFERED = ("stdbuf", "-oL")
"""Or it would say that it listens when the first message comes."""


class Heard(NamedTuple):
    topic: str
    body: Any

    @property
    def name(self) -> str:
        return name_of(self.topic)


class Ear:
    """A subscriber to some topics. Whoever has a `session` misses nothing while it is away."""

    def __init__(self, command: Sequence[str]) -> None:
        self.heard: list[Heard] = []
        self._command = command
        self._listens = asyncio.Event()
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(*self._command, stdout=PIPE, start_new_session=True)
        self._reading = asyncio.create_task(self._read())
        await asyncio.wait_for(self._listens.wait(), WITHIN_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Gone at once, without a word."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            kind, _, said = line.decode().rstrip("\n").partition(" ")
            if kind == "Subscribed":
                self._listens.set()
            elif kind == "heard":
                topic, _, body = said.partition(" ")
                self.heard.append(Heard(topic, json.loads(body)))
                self._changed.set()

    def all(self, name: str) -> list[Any]:
        return [each.body for each in self.heard if each.name == name]

    def times(self, name: str, field: str) -> Counter[tuple[str, str]]:
        """How often what was said under this name came, by topic and by what it has in a field."""
        return Counter((each.topic, str(each.body[field])) for each in self.heard if each.name == name)

    async def hears(self, name: str, count: int = 1, *, within_s: float = WITHIN_S) -> Any:
        """The last of so many."""
        async with asyncio.timeout(within_s):
            while len(self.all(name)) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.all(name)[count - 1]


class Town:
    """`login`: how mosquitto's clients come in. `mqtt_url`: how programs of Canoa do."""

    def __init__(self, broker_url: str, login: Sequence[str], *, mqtt_url: str, is_own: bool) -> None:
        self.broker_url = broker_url
        self.mqtt_url = mqtt_url
        self.is_own = is_own  # of devices alone: managers have a link to it
        self._login = login

    async def say(self, topic: str, body: Any, **properties: str) -> None:
        """Return once the broker has it. `properties`: of MQTT 5, with `_` for `-` in their names."""
        added = [
            word
            for name, value in properties.items()
            for word in ("-D", "publish", "user-property", name.replace("_", "-"), value)
        ]
        version = ["-V", "5"] if added else []
        command = ["mosquitto_pub", *self._login, *version, "-q", "1", "-t", topic, "-m", json.dumps(body), *added]
        process = await asyncio.create_subprocess_exec(*command)
        assert await asyncio.wait_for(process.wait(), WITHIN_S) == 0

    @asynccontextmanager
    async def ear(self, *topics: str, session: str = "") -> AsyncIterator[Ear]:
        """One that listens, inside the block."""
        named = [word for topic in topics for word in ("-t", topic)]
        kept = ["-i", session, "-c"] if session else []
        hear = [*UNBUFFERED, "mosquitto_sub", *self._login, "-d", "-q", "1", "-F", "heard %t %p"]
        async with Ear([*hear, *kept, *named]) as ear:
            yield ear


def through_rabbitmq(node: RabbitNode, vhost: str, *, user: str = "guest") -> Town:
    port = node.plugin_port("rabbitmq_mqtt")
    login = ["-h", LOOPBACK, "-p", str(port), "-u", f"{vhost}:{user}", "-P", PASSWORD]
    url = f"mqtt://{quote(f'{vhost}:{user}', safe='')}:{PASSWORD}@{LOOPBACK}:{port}"
    return Town(node.url(vhost), login, mqtt_url=url, is_own=False)


def through_mosquitto(broker_url: str, mosquitto: MosquittoNode) -> Town:
    login = ["-h", LOOPBACK, "-p", str(urlsplit(mosquitto.url).port)]
    return Town(broker_url, login, mqtt_url=mosquitto.url, is_own=True)
