"""A worker on an MQTT broker: it listens on its own topics, hears managers' heartbeats, and answers by topic.

Its last will is its farewell: a broker that loses it says so for it. Where the broker knows only MQTT 3.1.1, what Canoa
adds stays away, and the worker is a node like any other.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from canoa.broker import topology
from canoa.broker.mqtt_client import MqttClient
from canoa.errors import BrokerUnreachable, Undecodable, Unroutable
from canoa.logs import get_logger
from canoa.vocabulary import MQTT
from canoa.wire import sapparchi
from canoa.wire.bundle import is_bundle, packed
from canoa.wire.sapparchi import Heartbeat, RegistrationAck
from canoa.wire.topics import bundle_topic, node_topics, spellings
from canoa.worker import registration
from canoa.worker.ears import TopicEar
from canoa.worker.registration import State, View
from canoa.worker.uplinks.port import Uplink, UplinkDelivery

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from canoa.broker.mqtt_address import MqttAddress
    from canoa.broker.port import Delivery, Message, OnDelivery, PublishOutcome, Settlement
    from canoa.worker.ears import Ear

log = get_logger(__name__)

SESSION_S: Final = 86_400
"""How long messages wait for a node with a name of its own; RabbitMQ's own limit is the same."""
LINKED_WITHIN_S: Final = 30.0
LEAVE_WITHIN_S: Final = 2.0

_REGISTER: Final = spellings(topology.NODES_REGISTER)[1:]
_RESULTS: Final = spellings(topology.STEP_RESULTS)[1:]
"""In one spelling: managers listen to both, and need not hear everything twice."""
_BUNDLES: Final = (bundle_topic(_RESULTS[0]),)


class _Owed(NamedTuple):
    message: Message
    on_outcome: Callable[[PublishOutcome], None]


class MqttUplink:
    """`said`: what the node says of itself, forced or not, or that it leaves. `is_lasting`: its name will be used
    again, so messages wait for it. `is_alone`: the node has no other way; else nothing waits here, and its last will is
    about this way; `on_link` hears of every link then."""

    way = MQTT

    def __init__(
        self,
        address: MqttAddress,
        *,
        node_id: str,
        said: Callable[..., Message],
        is_lasting: bool,
        is_alone: bool,
        on_link: Callable[[], None] = lambda: None,
        on_time: Callable[[int], None] = lambda _: None,
        link_within_s: float | None = None,
    ) -> None:
        self._node_id = node_id
        self._said = said
        self._is_alone = is_alone
        self._is_lasting = is_lasting and is_alone
        self._on_link = on_link
        self._on_time = on_time
        self._link_within_s = LINKED_WITHIN_S if link_within_s is None else link_within_s
        self._loop = asyncio.get_running_loop()
        heard: dict[str, OnDelivery] = dict.fromkeys(node_topics(node_id), self._on_work)
        heard[bundle_topic(node_topics(node_id)[1])] = self._on_work
        heard |= dict.fromkeys(spellings(topology.MANAGER_AVAILABLE), self._on_word)
        heard |= dict.fromkeys(spellings(topology.NODES_ACK), self._on_word)
        self._client = MqttClient(
            address,
            client_id=f"canoa-node-{node_id}",
            topics=heard,
            session_s=SESSION_S if self._is_lasting else 0,
            will=(_REGISTER[0], said(is_leaving=True, leaves=() if is_alone else (self.way,))),
            on_ready=self._on_ready,
            ends_refused=is_alone,
        )
        self._in_hand = 0  # messages that are not acknowledged
        self.ear: Ear = TopicEar(self._client, node_topics(node_id)[1], lambda: self._in_hand)
        self._on_message: OnDelivery | None = None
        self._linked = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._view = View()
        self._timer: asyncio.TimerHandle | None = None
        self._is_leaving = False
        self._reads_bundles = False  # a manager that sends them
        self._owed: list[_Owed] = []  # since this turn of the loop

    @property
    def is_open(self) -> bool:
        """A manager is heard there: a broker of MQTT 3.1.1 also takes what nobody listens to."""
        return self._client.is_up and self._view.heard_s is not None

    @property
    def is_reachable(self) -> bool:
        return self._client.is_up

    @property
    def is_registered(self) -> bool:
        return self._view.state is State.REGISTERED

    async def start(self, on_message: OnDelivery) -> None:
        """Return once there is a link, or not in time: it is tried on. Nobody waits for it who has another way; who has
        none hears that its login is refused (`BrokerRefusedLogin`)."""
        self._on_message = on_message
        self._running = self._loop.create_task(self._client.run(), name=f"mqtt[{self._node_id}]")
        if not self._is_alone:
            return
        linked = self._loop.create_task(self._linked.wait())
        try:
            first = asyncio.FIRST_COMPLETED
            await asyncio.wait([linked, self._running], timeout=self._link_within_s, return_when=first)
        finally:
            linked.cancel()
        if self._running.done():
            await self._running

    def duties(self) -> list[Coroutine[Any, Any, None]]:
        return [self._watch()]

    async def _watch(self) -> None:
        assert self._running is not None
        await asyncio.shield(self._running)

    def renew(self) -> None:
        self._feed(registration.Renewed())

    def send(self, message: Message, on_outcome: Callable[[PublishOutcome], None]) -> None:
        if not self._reads_bundles:
            self._client.post(_RESULTS, message, partial(_told, on_outcome))
            return
        if not self._owed:
            self._loop.call_soon(self._send_together)
        self._owed.append(_Owed(message, on_outcome))

    def _send_together(self) -> None:
        owed, self._owed = self._owed, []
        at = 0
        for message, count in packed([each.message for each in owed]):
            together, at = owed[at : at + count], at + count
            self._client.post(_RESULTS if count == 1 else _BUNDLES, message, partial(_told_all, together))

    async def leave(self) -> None:
        self._is_leaving = True
        self._set_timer(None)
        is_said = asyncio.Event()
        self._client.post(_REGISTER, self._said(is_leaving=True), lambda _: is_said.set())
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_WITHIN_S):
                await is_said.wait()

    async def aclose(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    # --- What comes -------------------------------------------------------------------------------------

    def _on_work(self, delivery: Delivery) -> None:
        """Acknowledged to the broker when its answer is on its way: until then it would come again."""
        if self._on_message is None or (self._is_leaving and self._is_lasting):
            return  # it stays with the broker; where nothing waits there, it is given back by whoever leaves

        def settle(_: Settlement) -> None:
            self._in_hand -= 1
            delivery.settle()

        self._in_hand += 1

        self._reads_bundles |= is_bundle(delivery.message)
        self._on_message(UplinkDelivery(delivery.message, self, self._on_message, settle))

    def _on_word(self, delivery: Delivery) -> None:
        delivery.settle()
        try:
            if delivery.key in spellings(topology.NODES_ACK):
                self._on_ack(sapparchi.decode(delivery.message.body, RegistrationAck))
            else:
                self._on_heartbeat(sapparchi.decode(delivery.message.body, Heartbeat))
        except Undecodable as exc:
            log.debug("word_not_understood", topic=delivery.key, reason=str(exc))

    def _on_heartbeat(self, heartbeat: Heartbeat) -> None:
        if heartbeat.available:
            self._on_time(heartbeat.ts)
            self._feed(registration.Heard(heartbeat.ts, heartbeat.force_register))

    def _on_ack(self, ack: RegistrationAck) -> None:
        if ack.node_id == self._node_id and not self._is_leaving:
            if not self.is_registered:
                log.info("node_registered", node_id=ack.node_id, actions=len(ack.actions), way="MQTT")
            self._feed(registration.Acknowledged())

    # --- Registering ------------------------------------------------------------------------------------

    async def _on_ready(self) -> None:
        self._linked.set()
        if not self._is_alone:
            self._on_link()
        self.renew()

    def _feed(self, event: registration.Event) -> None:
        if self._is_leaving:
            return
        self._view, intent = registration.on(self._view, event, self._loop.time())
        if intent is not None:
            self._client.post(_REGISTER, self._said(is_forced=intent.is_forced), _heard_nothing)
        self._set_timer(registration.due_s(self._view))

    def _set_timer(self, due_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if due_s is None else self._loop.call_at(due_s, self._feed, registration.Ticked())


def _told_all(owed: list[_Owed], outcome: PublishOutcome) -> None:
    for each in owed:
        _told(each.on_outcome, outcome)


def _told(on_outcome: Callable[[PublishOutcome], None], outcome: PublishOutcome) -> None:
    """Who asked is a manager, so one will listen again: a broker that was started anew has forgotten them all."""
    is_unheard = isinstance(outcome, Unroutable)
    on_outcome(BrokerUnreachable("no manager listens at the MQTT broker") if is_unheard else outcome)


def _heard_nothing(_: PublishOutcome) -> None:
    """A registration that got lost is made good by the next heartbeat."""


_port: type[Uplink] = MqttUplink
