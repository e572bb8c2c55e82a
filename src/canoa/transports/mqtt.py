"""To devices on an MQTT broker of their own, such as Mosquitto, which does not know the manager's broker.

Every manager speaks by a link of its own. One of them, the leading one, also listens, under a name that all of them
share: the broker keeps for it what comes while none is there, and the next leader takes that over.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from canoa.broker import topology
from canoa.broker.direct import DirectDelivery
from canoa.broker.mqtt_client import MqttClient
from canoa.wire import sapparchi
from canoa.wire.bundle import packed
from canoa.wire.topics import bundle_topic, node_topics, spellings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from canoa.broker.mqtt_address import MqttAddress
    from canoa.broker.port import Delivery, Message, OnDelivery, PublishOutcome, Settlement
    from canoa.store.routed_port import NodeRow
    from canoa.transports.port import NodeTransport, OnSent

LISTENING_ID: Final = "canoa-managers"
SESSION_S: Final = 86_400
"""How long answers wait for a manager."""
ASK_EVERY_S: Final = 0.5


class MqttTransport:
    """`on_registration`, `on_result`, `on_request`: who takes what devices say. `is_leading`: whether this manager
    listens for all of them."""

    def __init__(
        self,
        address: MqttAddress,
        *,
        manager_id: str,
        is_leading: Callable[[], bool],
        on_registration: OnDelivery,
        on_result: OnDelivery,
        on_request: OnDelivery,
    ) -> None:
        self._is_leading = is_leading
        self._speaking = MqttClient(address, client_id=f"canoa-manager-{manager_id}")
        heard = {
            topology.NODES_REGISTER: on_registration,
            topology.STEP_RESULTS: on_result,
            topology.STEP_RESULTS_OLD: on_result,
        }
        topics = {topic: partial(_marked, taker) for name, taker in heard.items() for topic in spellings(name)}
        # Who asks here may not have managers write to a queue of their broker: so no bundles, whose parts may name one.
        asked = partial(_marked, on_request, reply_to=None, type=None)
        topics |= dict.fromkeys(spellings(topology.TASK_REQUESTS), asked)
        topics[bundle_topic(spellings(topology.STEP_RESULTS)[1])] = partial(_marked, on_result)
        self._listening = MqttClient(address, client_id=LISTENING_ID, topics=topics, session_s=SESSION_S)

    @property
    def is_up(self) -> bool:
        return self._speaking.is_up

    def may_reach(self, node: NodeRow) -> bool:
        return True

    def loops(self) -> dict[str, Coroutine[Any, Any, None]]:
        """By name; whoever runs them ends when one of them raises."""
        return {"mqtt.speak": self._speaking.run(), "mqtt.listen": self._listen()}

    async def _listen(self) -> None:
        while True:
            if self._is_leading():
                await self._listening.run(while_true=self._is_leading)
            await asyncio.sleep(ASK_EVERY_S)

    def post(self, node: NodeRow, messages: Sequence[Message], on_sent: OnSent) -> None:
        topics = node_topics(node.node_id)
        if node.takes_bundles and self._speaking.tells_headers:  # or nobody could tell it from a message
            self._post_bundled(topics[1], messages, on_sent)
            return
        for place, message in enumerate(messages):
            self._speaking.post(topics, message, partial(on_sent, range(place, place + 1)))

    def _post_bundled(self, topic: str, messages: Sequence[Message], on_sent: OnSent) -> None:
        """To one of ours, which listens to both spellings: it would get everything twice."""
        place = 0
        for message, count in packed(messages):
            places, place = range(place, place + count), place + count
            self._speaking.post([topic if count == 1 else bundle_topic(topic)], message, partial(on_sent, places))

    def tell(self, name: str, message: Message) -> None:
        """To all devices: a heartbeat, a welcome."""
        self._speaking.post(spellings(name), message, _ignored, qos=0)

    def tell_confirmed(self, name: str, message: Message, on_outcome: Callable[[PublishOutcome], None]) -> None:
        """To whoever listens, at least once. `Unroutable`: nobody does."""
        self._speaking.post(spellings(name), message, on_outcome)


def _marked(take: OnDelivery, delivery: Delivery, **left_out: None) -> None:
    """With the way it came by."""
    came = delivery.message
    headers = {**came.headers, sapparchi.BY_MQTT_LINK: True}

    def settle(how: Settlement) -> None:
        delivery.settle(how)

    take(DirectDelivery(msgspec.structs.replace(came, headers=headers, **left_out), settle, key=delivery.key))


def _ignored(_: PublishOutcome) -> None:
    """The next one comes soon."""


_port: type[NodeTransport] = MqttTransport
