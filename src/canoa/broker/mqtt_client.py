"""One MQTT link that comes back by itself: what the library's client lacks for managers and workers.

Messages are acknowledged when they are settled, not when they arrive: whoever is killed in between gets them again. On
every link, what was subscribed to is subscribed to anew.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from canoa.broker.direct import DirectDelivery
from canoa.errors import BrokerUnreachable, DeliveryUnknown
from canoa.logs import get_logger
from canoa.wire import fields, packing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from canoa.broker.mqtt_address import MqttAddress
    from canoa.broker.port import Message, OnDelivery, PublishOutcome, Settlement

log = get_logger(__name__)

KEEP_ALIVE_S: Final = 10
AGAIN_AFTER_S: Final = 0.5
AGAIN_AT_MOST_S: Final = 15.0
CONFIRMED_WITHIN_S: Final = 10.0
AT_ONCE: Final = 200
"""Publishes that wait for their acknowledgement. More wait their turn: the library's work grows with them."""
RECEIVE_MAXIMUM: Final = 1000
"""Messages in our hands that are not acknowledged; a broker that knows MQTT 5 sends no more."""

OWN_BYTES: Final = 2**31
"""Of what we compressed ourselves: its size was checked before."""

Ready: TypeAlias = Callable[[], Awaitable[None]]


class MqttClient:
    """`run` keeps the link. `topics`: what is heard, and who hears it, by topic. `session_s`: how long the broker keeps
    what comes for us while we are away; zero: not at all. `will`: topic and text of what the broker says for us, once
    we are gone without a word. MQTT 5 is tried first, then 3.1.1."""

    def __init__(
        self,
        address: MqttAddress,
        *,
        client_id: str,
        topics: Mapping[str, OnDelivery] | None = None,
        session_s: int = 0,
        will: tuple[str, Message] | None = None,
        on_ready: Ready | None = None,
    ) -> None:
        self._address = address
        self._client_id = client_id
        self._topics = topics or {}
        self._session_s = session_s
        self._will = will
        self._on_ready = on_ready
        self._loop = asyncio.get_running_loop()
        self._client: aiomqtt.Client | None = None
        self._is_old = False  # the broker knows only MQTT 3.1.1
        self._room = asyncio.Semaphore(AT_ONCE)
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def is_up(self) -> bool:
        return self._client is not None

    # --- Its life ---------------------------------------------------------------------------------------

    async def run(self, *, while_true: Callable[[], bool] = lambda: True) -> None:
        """Until cancelled, or until `while_true` says no, which is asked now and then."""
        wait_s = AGAIN_AFTER_S
        while while_true():
            began_s = self._loop.time()
            try:
                await self._linked(while_true)
            except (aiomqtt.MqttError, OSError) as exc:
                self._is_old ^= _is_about_version(exc)
                log.warning("mqtt_link_lost", broker=f"{self._address.host}:{self._address.port}", reason=str(exc))
            is_steady = self._loop.time() - began_s > AGAIN_AT_MOST_S
            wait_s = AGAIN_AFTER_S if is_steady else min(2 * wait_s, AGAIN_AT_MOST_S)
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))

    async def _linked(self, while_true: Callable[[], bool]) -> None:
        async with self._new_client() as client:
            if self._topics:
                await client.subscribe([(topic, 1) for topic in self._topics])
            self._client = client
            try:
                if self._on_ready is not None:
                    await self._on_ready()
                await self._hear(client, while_true)
            finally:
                self._client = None

    def _new_client(self) -> aiomqtt.Client:
        client = aiomqtt.Client(
            **self._address.arguments(),
            **self._session(),
            identifier=self._client_id,
            keepalive=KEEP_ALIVE_S,
            max_inflight_messages=AT_ONCE,
            will=self._new_will(),
        )
        client.pending_calls_threshold = 2 * AT_ONCE
        client._client.manual_ack_set(True)  # the library gives no other way to acknowledge after the work
        return client

    def _session(self) -> dict[str, Any]:
        is_clean = self._session_s == 0
        if self._is_old:
            return {"protocol": aiomqtt.ProtocolVersion.V311, "clean_session": is_clean}
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = self._session_s
        properties.ReceiveMaximum = RECEIVE_MAXIMUM
        return {"protocol": aiomqtt.ProtocolVersion.V5, "clean_start": is_clean, "properties": properties}

    def _new_will(self) -> aiomqtt.Will | None:
        if self._will is None:
            return None
        topic, message = self._will
        properties = None if self._is_old else _spelt(message, PacketTypes.WILLMESSAGE)
        return aiomqtt.Will(topic, message.body, qos=1, properties=properties)

    async def _hear(self, client: aiomqtt.Client, while_true: Callable[[], bool]) -> None:
        """Raises when the link ends."""
        messages = aiter(client.messages)
        coming = asyncio.ensure_future(anext(messages))
        try:
            while while_true():
                done, _ = await asyncio.wait([coming], timeout=1.0)
                if done:
                    self._take(client, coming.result())
                    coming = asyncio.ensure_future(anext(messages))
        finally:
            coming.cancel()
            with suppress(asyncio.CancelledError, aiomqtt.MqttError, StopAsyncIteration):
                await coming

    def _take(self, client: aiomqtt.Client, came: aiomqtt.Message) -> None:
        topic = str(came.topic)
        on_delivery = self._topics.get(topic)
        if on_delivery is None:  # of a session that once heard more
            _acknowledge(client, came)
        else:
            body = bytes(came.payload)
            message = fields.read(body, _properties(came))
            on_delivery(DirectDelivery(message, partial(self._settled, client, came), key=topic))

    def _settled(self, client: aiomqtt.Client, came: aiomqtt.Message, _: Settlement) -> None:
        if client is self._client:  # of another link the broker sends it again
            _acknowledge(client, came)

    # --- Saying -----------------------------------------------------------------------------------------

    def post(
        self, topics: Sequence[str], message: Message, on_outcome: Callable[[PublishOutcome], None], *, qos: int = 1
    ) -> None:
        """To all of them, as one: the outcome is told once, from the event loop. `BrokerUnreachable`: no link."""
        if self._client is None:
            self._loop.call_soon(on_outcome, BrokerUnreachable(f"no link to the MQTT broker at {self._address.host}"))
            return
        task = self._loop.create_task(self._send(self._client, topics, message, on_outcome, qos), name="mqtt.send")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(
        self,
        client: aiomqtt.Client,
        topics: Sequence[str],
        message: Message,
        on_outcome: Callable[[PublishOutcome], None],
        qos: int,
    ) -> None:
        outcome: PublishOutcome = None
        properties = None if self._is_old else _spelt(message)
        body = _plain(message) if self._is_old else message.body
        async with self._room:
            try:
                for topic in topics:
                    await client.publish(topic, body, qos=qos, properties=properties, timeout=CONFIRMED_WITHIN_S)
            except (aiomqtt.MqttError, OSError, ValueError) as exc:
                outcome = DeliveryUnknown(f"the MQTT broker did not confirm a message: {exc}")
        on_outcome(outcome)

    async def aclose(self) -> None:
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)


def _plain(message: Message) -> bytes:
    """Over 3.1.1 nobody can be told that a body is compressed: it was when the link was another."""
    return packing.unpack(message, OWN_BYTES) if message.content_encoding else message.body


def _acknowledge(client: aiomqtt.Client, came: aiomqtt.Message) -> None:
    with suppress(OSError, ValueError):
        client._client.ack(came.mid, came.qos)


def _properties(came: aiomqtt.Message) -> list[tuple[str, str]]:
    """Of MQTT 5; a client of 3.1.1 sends none."""
    given: Any = came.properties
    found: list[tuple[str, str]] = list(getattr(given, "UserProperty", []))
    if content_type := getattr(given, "ContentType", None):
        found.append((fields.CONTENT_TYPE, content_type))
    return found


def _is_about_version(error: Exception) -> bool:
    """A broker that does not know ours says so, or hangs up on us; one that is away does not answer at all."""
    return isinstance(error, aiomqtt.MqttError) and not isinstance(error.__cause__, OSError)


def _spelt(message: Message, packet: int = PacketTypes.PUBLISH) -> Properties:
    properties = Properties(packet)  # type: ignore[no-untyped-call]
    if spelt := fields.spelt(message):
        properties.UserProperty = spelt
    if message.content_encoding:  # assigned, it comes on top of the others
        properties.UserProperty = [(fields.CONTENT_ENCODING, message.content_encoding)]
    if message.content_type:
        properties.ContentType = message.content_type
    if message.expiration_s is not None:
        properties.MessageExpiryInterval = max(1, round(message.expiration_s))
    return properties
