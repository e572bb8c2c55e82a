"""Requests to one topic, answers from another, by aiomqtt, through the same Mosquitto: MQTT 5, quality of service 1."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from typing import Any
from urllib.parse import urlsplit

import aiomqtt
import uvloop

from benchmarks import environment
from benchmarks.contestant import unmeasured

PACKAGES = ("aiomqtt", "paho-mqtt")
QUEUE = "bench/requests"
REPLIES = "bench/replies"
READY = "bench/ready"
AT_ONCE = 200
SETTINGS = f"one client each; QoS 1, {AT_ONCE} publishes unconfirmed at once, a task each; TCP_NODELAY"
LEAVES_OUT = dict.fromkeys(("submit", "fill"), "only answers are compared here")
WORKER = [sys.executable, "-m", "benchmarks.transports.contestants.bare_mqtt"]
READY_WITHIN_S = 30.0

submit = fill = unmeasured


def gather(count: int, payload: str) -> float:
    return uvloop.run(_exchanges(count, payload, times=1))[0]


def call(count: int, payload: str) -> list[float]:
    return uvloop.run(_exchanges(1, payload, times=count))


async def _exchanges(count: int, payload: str, *, times: int) -> list[float]:
    """Seconds from sending `count` requests at once to the last answer, each time."""
    async with _client() as client:
        await client.subscribe([(REPLIES, 1), (READY, 1)])
        arrivals = aiter(client.messages)
        async with asyncio.timeout(READY_WITHIN_S):
            await anext(arrivals)  # kept by the broker since somebody answers
        sending = Sending(client)
        seconds = []
        for _ in range(times):
            began = time.perf_counter()
            for _ in range(count):
                sending.send(QUEUE, payload.encode())
            for _ in range(count):
                await anext(arrivals)
            seconds.append(time.perf_counter() - began)
    return seconds


class Sending:
    """As many at once as the library does well with."""

    def __init__(self, client: aiomqtt.Client) -> None:
        self._client = client
        self._room = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, topic: str, body: bytes) -> None:
        task = asyncio.get_running_loop().create_task(self._send(topic, body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, topic: str, body: bytes) -> None:
        async with self._room:
            await self._client.publish(topic, body, qos=1)


async def answer() -> None:
    """Until killed."""
    async with _client() as client:
        await client.subscribe(QUEUE, qos=1)
        await client.publish(READY, b"ready", qos=1, retain=True)
        sending = Sending(client)
        async for message in client.messages:
            payload: Any = message.payload
            sending.send(REPLIES, payload)


def _client() -> aiomqtt.Client:
    parts = urlsplit(environment.mqtt_url())
    client = aiomqtt.Client(
        parts.hostname or "",
        parts.port or 1883,
        protocol=aiomqtt.ProtocolVersion.V5,
        max_inflight_messages=AT_ONCE,
        socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
    )
    client.pending_calls_threshold = 2 * AT_ONCE
    return client


if __name__ == "__main__":
    uvloop.run(answer())
