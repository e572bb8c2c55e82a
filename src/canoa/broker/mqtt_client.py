"""One MQTT link that comes back by itself: what the library's client lacks for managers and workers.

Messages are acknowledged when they are settled, not when they arrive: whoever is killed in between gets them again. On
every link, what was subscribed to is subscribed to anew.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import aiomqtt
from aiomqtt.exceptions import MqttConnectError
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from canoa.broker.direct import DirectDelivery
from canoa.broker.mqtt_sending import AT_ONCE, MqttSending, spelt
from canoa.errors import BrokerRefusedLogin, BrokerUnreachable
from canoa.logs import get_logger
from canoa.wire import fields
from canoa.wire.topics import name_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import paho.mqtt.client as paho

    from canoa.broker.mqtt_address import MqttAddress
    from canoa.broker.port import Message, OnDelivery, PublishOutcome, Settlement

log = get_logger(__name__)

KEEP_ALIVE_S: Final = 10
AGAIN_AFTER_S: Final = 0.5
AGAIN_AT_MOST_S: Final = 15.0
LOGIN_PATIENCE_S: Final = 60.0
"""How long a login that was taken before may be refused: a broker that is being started may know no users yet."""
RECEIVE_MAXIMUM: Final = 1000
"""Messages in our hands that are not acknowledged; a broker that knows MQTT 5 sends no more."""

_NO_LIMIT: Final = 0  # of the library's own; `mqtt_sending.py` has one
_NO_DELAY: Final = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
"""Small packets leave at once. Otherwise every other message waits 40 ms for the broker's acknowledgement of TCP."""

REFUSED: Final = 0x80
"""Codes of a subscription from here on up say no."""
_BAD_LOGINS: Final = (134, 135)
"""The user or the password is wrong, or may not come in. The library has the same for both versions of MQTT."""
_NO_WELCOME: Final = "Operation timed out"  # the library's words for a broker that said nothing to our greeting

Ready: TypeAlias = Callable[[], Awaitable[None]]


class _HungUp(aiomqtt.MqttError):
    """Before it had said a word."""


class MqttClient:
    """`run` keeps the link. `topics`: what is heard, and who hears it, by topic. `session_s`: how long the broker keeps
    what comes for us while we are away; zero: not at all. `will`: topic and text of what the broker says for us, once
    we are gone without a word. `ends_refused`: it ends where the broker refuses its login. MQTT 5 is tried first, then
    3.1.1."""

    def __init__(
        self,
        address: MqttAddress,
        *,
        client_id: str,
        topics: Mapping[str, OnDelivery] | None = None,
        session_s: int = 0,
        will: tuple[str, Message] | None = None,
        on_ready: Ready | None = None,
        ends_refused: bool = False,
    ) -> None:
        self._address = address
        self._client_id = client_id
        self._topics = topics or {}
        self._by_name = {name_of(topic): heard for topic, heard in self._topics.items()}
        self._session_s = session_s
        self._will = will
        self._on_ready = on_ready
        self._ends_refused = ends_refused
        self._was_let_in = False
        self._refused_since_s: float | None = None
        self._loop = asyncio.get_running_loop()
        self._client: aiomqtt.Client | None = None
        self.links = 0  # that it had so far
        self._is_old = False  # the broker knows only MQTT 3.1.1
        self._knows_new = False  # it knew MQTT 5 once
        self._sending: MqttSending | None = None
        self._early: list[paho.MQTTMessage] = []  # of an earlier session: they come before the link is ready
        self._receive_maximum = AT_ONCE  # of the broker

    @property
    def is_up(self) -> bool:
        return self._sending is not None

    @property
    def tells_headers(self) -> bool:
        """Whoever hears us gets what Canoa adds to a message: the link is one of MQTT 5."""
        return not self._is_old

    # --- Its life ---------------------------------------------------------------------------------------

    async def run(self, *, while_true: Callable[[], bool] = lambda: True) -> None:
        """Until cancelled, or until `while_true` says no, which is asked now and then. Where it `ends_refused`, raises
        `BrokerRefusedLogin`: at once, or for one that was let in before after `LOGIN_PATIENCE_S`."""
        wait_s = AGAIN_AFTER_S
        while while_true():
            began_s = self._loop.time()
            try:
                await self._linked(while_true)
            except (aiomqtt.MqttError, OSError) as exc:
                if _refuses_login(exc):
                    self._on_refused(exc)
                elif self._tries_older(exc):
                    continue  # at once: one that is just starting would hang up again, and get the newer one next
                else:
                    self._refused_since_s = None
                    log.warning("mqtt_link_lost", broker=self._address.place, reason=str(exc))
            is_steady = self._loop.time() - began_s > AGAIN_AT_MOST_S
            wait_s = AGAIN_AFTER_S if is_steady else min(2 * wait_s, AGAIN_AT_MOST_S)
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))

    def _tries_older(self, exc: Exception) -> bool:
        """A broker that does not know our version hangs up on us; one that was heard to know it never does."""
        self._is_old ^= not self._knows_new and _was_hung_up_on(exc)
        return self._is_old and isinstance(exc, _HungUp)

    def _on_refused(self, exc: Exception) -> None:
        """Said once as what somebody must look at; after that it is only tried on, more and more rarely."""
        now_s, is_news = self._loop.time(), self._refused_since_s is None
        since_s = self._refused_since_s = now_s if self._refused_since_s is None else self._refused_since_s
        remedy = "check user and password of its address (--mqtt, CANOA_MQTT)"
        if self._ends_refused and (not self._was_let_in or now_s - since_s > LOGIN_PATIENCE_S):
            raise BrokerRefusedLogin(
                f"the MQTT broker at {self._address.place} refuses the login: {exc}; {remedy}"
            ) from exc
        facts = {"broker": self._address.place, "client": self._client_id, "reason": str(exc)}
        if is_news:
            log.error("mqtt_login_refused", **facts, remedy=remedy)
        else:
            log.info("mqtt_login_still_refused", **facts)

    async def _linked(self, while_true: Callable[[], bool]) -> None:
        self._early.clear()
        async with self._new_client() as client:
            self._knows_new |= not self._is_old
            self._was_let_in, self._refused_since_s = True, None
            if self._topics:
                _check(await client.subscribe([(topic, 1) for topic in self._topics]), self._topics)
            self._begin(client)
            try:
                if self._on_ready is not None:
                    await self._on_ready()
                await _wait_ended(client, while_true)
            finally:
                self._end()

    def _begin(self, client: aiomqtt.Client) -> None:
        self.links += 1
        self._client = client
        self._sending = MqttSending(client._client, is_old=self._is_old, at_once=min(AT_ONCE, self._receive_maximum))
        early, self._early = self._early, []
        for came in early:
            self._take(client, came)

    def _end(self) -> None:
        sending, self._sending, self._client = self._sending, None, None
        assert sending is not None
        sending.close()

    def _new_client(self) -> aiomqtt.Client:
        client = aiomqtt.Client(
            **self._address.arguments(),
            **self._session(),
            identifier=self._client_id,
            keepalive=KEEP_ALIVE_S,
            max_inflight_messages=_NO_LIMIT,
            socket_options=_NO_DELAY,
            will=self._new_will(),
        )
        self._hook(client)
        return client

    def _hook(self, client: aiomqtt.Client) -> None:
        """Into what the library calls from the event loop: its own ways cost two tasks per message that comes, one per
        message that goes, and acknowledge before the work."""
        inner = client._client
        on_connect: Any = inner.on_connect
        on_disconnect: Any = inner.on_disconnect

        def on_connected(*told: Any) -> None:
            self._receive_maximum = getattr(told[-1], "ReceiveMaximum", AT_ONCE)
            on_connect(*told)

        def on_disconnected(*told: Any) -> None:
            if not client._connected.done():  # the library would wait for a welcome, for ten seconds
                client._connected.set_exception(_HungUp("the broker hung up on our greeting"))
            on_disconnect(*told)

        def on_message(_: paho.Client, __: Any, came: paho.MQTTMessage) -> None:
            if client is self._client:
                self._take(client, came)
            else:
                self._early.append(came)

        def on_publish(_: paho.Client, __: Any, number: int, reason: Any, *___: Any) -> None:
            if self._sending is not None and client is self._client:
                self._sending.on_confirmed(number, reason)

        inner.manual_ack_set(True)
        inner.on_connect, inner.on_disconnect = on_connected, on_disconnected
        inner.on_message, inner.on_publish = on_message, on_publish

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
        properties = None if self._is_old else spelt(message, PacketTypes.WILLMESSAGE)
        return aiomqtt.Will(topic, message.body, qos=1, properties=properties)

    def link_anew(self) -> None:
        """End this link, if there is one; `run` makes the next, and subscribes to everything again."""
        if self._client is not None:
            self._client._client.disconnect()

    # --- Hearing ----------------------------------------------------------------------------------------

    def _take(self, client: aiomqtt.Client, came: paho.MQTTMessage) -> None:
        topic = came.topic
        on_delivery = self._topics.get(topic)
        if on_delivery is None:  # RabbitMQ has one sign for dots and slashes, also within a node's id
            on_delivery = self._by_name.get(name_of(topic))
        if on_delivery is None:  # of a session that once heard more
            _acknowledge(client, came)
        else:
            message = fields.read(bytes(came.payload), _properties(came))
            on_delivery(DirectDelivery(message, partial(self._settled, client, came), key=topic))

    def _settled(self, client: aiomqtt.Client, came: paho.MQTTMessage, _: Settlement) -> None:
        if client is self._client:  # of another link the broker sends it again
            _acknowledge(client, came)

    # --- Saying -----------------------------------------------------------------------------------------

    def post(
        self, topics: Sequence[str], message: Message, on_outcome: Callable[[PublishOutcome], None], *, qos: int = 1
    ) -> None:
        """To all of them, as one: the outcome is told once, from the event loop. `BrokerUnreachable`: no link."""
        if self._sending is None:
            self._loop.call_soon(on_outcome, BrokerUnreachable(f"no link to the MQTT broker at {self._address.host}"))
        else:
            self._sending.post(topics, message, on_outcome, qos=qos)


async def _wait_ended(client: aiomqtt.Client, while_true: Callable[[], bool]) -> None:
    """Raises when the link ends; returns when `while_true` says no."""
    nothing = asyncio.ensure_future(anext(aiter(client.messages)))  # what comes is taken before it gets there
    try:
        while while_true():
            await asyncio.wait([nothing], timeout=1.0)
            if nothing.done():
                nothing.result()
    finally:
        nothing.cancel()
        with suppress(asyncio.CancelledError, aiomqtt.MqttError):
            await nothing


def _acknowledge(client: aiomqtt.Client, came: paho.MQTTMessage) -> None:
    with suppress(OSError, ValueError):
        client._client.ack(came.mid, came.qos)


def _properties(came: paho.MQTTMessage) -> list[tuple[str, str]]:
    """Of MQTT 5; a client of 3.1.1 sends none."""
    given: Any = came.properties
    found: list[tuple[str, str]] = list(getattr(given, "UserProperty", []))
    if content_type := getattr(given, "ContentType", None):
        found.append((fields.CONTENT_TYPE, content_type))
    return found


def _refuses_login(error: Exception) -> bool:
    return isinstance(error, MqttConnectError) and getattr(error.rc, "value", error.rc) in _BAD_LOGINS


def _was_hung_up_on(error: Exception) -> bool:
    """There was somebody, who did not let us in. One that is away is told by what the system says about it."""
    return isinstance(error, MqttConnectError | _HungUp) or str(error) == _NO_WELCOME


def _check(codes: Sequence[Any], topics: Mapping[str, OnDelivery]) -> None:
    """A link that does not hear what it should is none."""
    refused = [topic for topic, code in zip(topics, codes, strict=True) if getattr(code, "value", code) >= REFUSED]
    if refused:
        raise aiomqtt.MqttError(f"the broker does not let us listen to {', '.join(refused)[:300]}")
