"""What is said over one MQTT link, and what is known of it: a window of messages that the broker has not confirmed.

The library's own way costs a task and a timer per message, and its own window is searched with every confirmation. So
this one is ours, and the library only writes.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from canoa.errors import BrokerRefusedMessage, BrokerUnreachable, DeliveryUnknown, Unroutable, WrongUse
from canoa.wire import fields, packing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import paho.mqtt.client as paho

    from canoa.broker.port import Message, PublishOutcome

CONFIRMED_WITHIN_S: Final = 10.0
LOOK_EVERY_S: Final = 1.0
AT_ONCE: Final = 200
"""Messages that wait for the broker's confirmation. More wait their turn here; a broker may allow fewer."""

NOBODY: Final = 0x10
"""What a broker of MQTT 5 says of a message that it took, and that nobody has subscribed to."""

OWN_BYTES: Final = 2**31
"""Of what we compressed ourselves: its size was checked before."""


class _Posted:
    """One message to all of its topics. `left`: those that are not confirmed. It is unroutable where nobody has
    subscribed to any of them."""

    __slots__ = ("_is_taken", "_on_outcome", "_outcome", "body", "left", "properties")

    def __init__(
        self, body: bytes, properties: Properties | None, on_outcome: Callable[[PublishOutcome], None], *, left: int
    ) -> None:
        self.body = body
        self.properties = properties
        self.left = left
        self._on_outcome = on_outcome
        self._outcome: PublishOutcome = None
        self._is_taken = False

    def confirm(self, outcome: PublishOutcome) -> None:
        """At one topic."""
        self._is_taken |= outcome is None
        if self._outcome is None or isinstance(self._outcome, Unroutable):
            self._outcome = outcome or self._outcome
        self.left -= 1
        if not self.left:
            is_heard = self._is_taken and isinstance(self._outcome, Unroutable)
            self._on_outcome(None if is_heard else self._outcome)


class MqttSending:
    """`client`: of a link that is up, until `close`. `is_old`: without what only MQTT 5 has. Belongs to one event
    loop."""

    def __init__(self, client: paho.Client, *, is_old: bool, at_once: int = AT_ONCE) -> None:
        self._client = client
        self._is_old = is_old
        self._at_once = at_once
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[str, _Posted]] = deque()  # with the topic
        self._unconfirmed: dict[int, tuple[_Posted, float]] = {}  # and until when, by its number, the oldest first
        self._late: set[int] = set()  # given up, but the broker may still count them
        self._timer: asyncio.TimerHandle | None = None

    def post(
        self, topics: Sequence[str], message: Message, on_outcome: Callable[[PublishOutcome], None], *, qos: int
    ) -> None:
        """To all of them, as one: the outcome is told once, never from inside."""
        properties = None if self._is_old else spelt(message)
        body = _plain(message) if self._is_old else message.body
        posted = _Posted(body, properties, on_outcome, left=len(topics))
        if qos:
            self._waiting.extend((topic, posted) for topic in topics)
            self._send_waiting()
        else:
            for topic in topics:
                self._loop.call_soon(posted.confirm, self._said(topic, posted, qos=0))

    def on_confirmed(self, number: int, reason: Any) -> None:
        """The broker has answered for the message of this number."""
        self._late.discard(number)
        found = self._unconfirmed.pop(number, None)
        if found is not None:
            found[0].confirm(_outcome(reason))
        self._send_waiting()  # also what came too late makes room

    def close(self) -> None:
        """The link is gone."""
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, deque()
        unconfirmed, self._unconfirmed = self._unconfirmed, {}
        for posted, _ in unconfirmed.values():
            posted.confirm(DeliveryUnknown("the link to the MQTT broker ended before it confirmed a message"))
        for _, posted in waiting:
            posted.confirm(BrokerUnreachable("the link to the MQTT broker ended before a message was sent"))

    def _send_waiting(self) -> None:
        while self._waiting and len(self._unconfirmed) + len(self._late) < self._at_once:
            topic, posted = self._waiting.popleft()
            outcome = self._said(topic, posted, qos=1)
            if outcome is not None:
                self._loop.call_soon(posted.confirm, outcome)
        if self._unconfirmed and self._timer is None:
            self._timer = self._loop.call_later(LOOK_EVERY_S, self._on_time)

    def _said(self, topic: str, posted: _Posted, *, qos: int) -> PublishOutcome:
        """None: it is on its way."""
        try:
            said = self._client.publish(topic, posted.body, qos=qos, properties=posted.properties)
        except (ValueError, struct.error) as exc:
            return WrongUse(f"MQTT cannot carry the message: {exc}")
        if said.rc is not MQTTErrorCode.MQTT_ERR_SUCCESS:
            return DeliveryUnknown(f"a message could not be sent to the MQTT broker: {said.rc.name}")
        if qos:
            self._unconfirmed[said.mid] = posted, self._loop.time() + CONFIRMED_WITHIN_S
        return None

    def _on_time(self) -> None:
        now_s = self._loop.time()
        late = [number for number, (_, until_s) in self._unconfirmed.items() if until_s <= now_s]
        self._late.update(late)
        for number in late:
            posted, _ = self._unconfirmed.pop(number)
            posted.confirm(DeliveryUnknown(f"the MQTT broker confirmed nothing within {CONFIRMED_WITHIN_S:g} s"))
        self._timer = None
        self._send_waiting()


def _outcome(reason: Any) -> PublishOutcome:
    if reason.is_failure:
        return BrokerRefusedMessage(f"the MQTT broker says: {reason}")
    return Unroutable("nobody has subscribed to its topic at the MQTT broker") if reason.value == NOBODY else None


def _plain(message: Message) -> bytes:
    """Over 3.1.1 nobody can be told that a body is compressed: it was when the link was another."""
    return packing.unpack(message, OWN_BYTES) if message.content_encoding else message.body


def spelt(message: Message, packet: int = PacketTypes.PUBLISH) -> Properties:
    """What Canoa adds to a message, as MQTT 5 has it."""
    properties = Properties(packet)  # type: ignore[no-untyped-call]
    found = fields.spelt(message)
    if message.content_encoding:
        found.append((fields.CONTENT_ENCODING, message.content_encoding))
    if found:
        properties.UserProperty = found
    if message.content_type:
        properties.ContentType = message.content_type
    if message.expiration_s is not None:
        properties.MessageExpiryInterval = max(1, round(message.expiration_s))
    return properties
