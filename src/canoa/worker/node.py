"""A worker as a node: it has a queue of its own, says what it offers, hears managers, and leaves.

When it registers is decided in `registration.py`; what comes through its queue is opened in `unicast.py`. Where there
is no manager, its registration goes nowhere, and nothing is done until one is heard.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from canoa.broker import topology
from canoa.broker.listeners import listeners
from canoa.broker.port import HeaderValue, Message, Publication
from canoa.clock import elapsed_ms, now_ms
from canoa.errors import CanoaError, NodeIdTaken, Undecodable
from canoa.logs import get_logger
from canoa.urn import action_urn
from canoa.wire import sapparchi
from canoa.wire.codec import ContentType
from canoa.wire.sapparchi import Heartbeat, Registration, RegistrationAck
from canoa.worker import registration
from canoa.worker.identity import fixed_headers
from canoa.worker.managers_time import ManagersTime
from canoa.worker.registration import State, View

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from canoa.broker.port import Broker, Consumer, Delivery, OnDelivery, PublishOutcome
    from canoa.worker.health_page import HealthPage
    from canoa.worker.identity import Identity

log = get_logger(__name__)

TYPE: Final = "canoa-worker"
"""What kind of node this is, as registrations say it."""

POLL_EVERY_S: Final = 3.0
LEAVE_WITHIN_S: Final = 2.0
EMPTY_WITHIN_S: Final = 2.0
LOOK_AGAIN_S: Final = 0.05

REGISTRATION_TTL_S: Final = 60.0
"""A registration that no manager took by then is old; it would only keep the next one waiting."""

MADE_UP_EXPIRES_S: Final = 120.0
"""How long the queue of a node with a made-up name outlives it. Longer bridges longer cuts, and keeps work longer from
other nodes where this one was killed."""

PREDECESSOR_WITHIN_S: Final = 25.0
"""A lost machine's consumer stays until the broker misses two heartbeats of its link, ten seconds each."""

UNANSWERED_REMEDY: Final = "the manager's log says why"
CLOCK_REMEDY: Final = "set the clock here, or at the managers (NTP); meanwhile deadlines are read by theirs"


class Node:
    """`load`: attempts that run, as a share of those that may. `closed`: those of its ways that are so just now."""

    def __init__(
        self,
        broker: Broker,
        identity: Identity,
        *,
        load: Callable[[], float],
        closed: Callable[[], tuple[str, ...]],
        page: HealthPage | None,
    ) -> None:
        self.queue = topology.node_queue_name(identity.node_id)
        self._consumer: Consumer | None = None  # of its queue
        self._broker = broker
        self._identity = identity
        self._load = load
        self._closed = closed
        self._page = page
        self._urns = [action_urn(name) for name in identity.policies]
        self._instance = os.urandom(8).hex()
        self._heartbeats = topology.heartbeat_queue_name(identity.node_id, self._instance)
        self._fixed_headers = fixed_headers(identity, self._instance)
        self._hearing: Consumer | None = None
        self._view = View()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_leaving = False
        self._is_taken = asyncio.Event()
        self._on_message: OnDelivery  # from the start on, like the next
        self._prefetch: int
        self._is_listening = asyncio.Event()  # not while it begins to anew
        self._links = 0  # to its MQTT broker
        self._managers_time = ManagersTime()

    @property
    def id(self) -> str:
        return self._identity.node_id

    @property
    def is_leaving(self) -> bool:
        return self._is_leaving

    @property
    def is_listening(self) -> bool:
        """What is sent to its queue comes. Managers may be heard before."""
        return self._consumer is not None and self._consumer.is_listening

    @property
    def hears_managers(self) -> bool:
        """Through its broker, a moment ago."""
        return self._view.heard_s is not None

    @property
    def state(self) -> State:
        return self._view.state

    def renew(self) -> None:
        """Say anew what it is: something of that has changed."""
        self._feed(registration.Renewed())

    def count_link(self) -> None:
        """One more to its MQTT broker: managers send again what the one before had."""
        self._links += 1

    @property
    def ahead_ms(self) -> int:
        """Of managers' time, its clock."""
        time = self._managers_time
        return time.ahead_ms(now_ms(), elapsed_ms()) if time.is_off else 0

    def heard_time(self, manager_ms: int) -> None:
        """A manager's clock, as its heartbeat told it a moment ago."""
        if self._managers_time.heard(manager_ms, now_ms(), elapsed_ms()):
            log.warning("clock_differs", node_id=self.id, ahead_s=round(self.ahead_ms / 1000), remedy=CLOCK_REMEDY)

    # --- Joining --------------------------------------------------------------------------------------

    async def wait_free(self) -> None:
        """Return once nobody listens under this id. Raises `NodeIdTaken` where somebody goes on doing so: two that
        share a queue take each other's work."""
        node_id = self._identity.node_id
        if self._identity.is_made_up or not await listeners(self._broker, node_id):
            return
        log.warning("node_id_in_use", node_id=node_id, waits_s=PREDECESSOR_WITHIN_S)
        try:
            async with asyncio.timeout(PREDECESSOR_WITHIN_S):
                while await listeners(self._broker, node_id):  # noqa: ASYNC110  # the broker tells nobody
                    await asyncio.sleep(LOOK_AGAIN_S)
        except TimeoutError:
            log.error("node_id_taken", node_id=node_id)
            raise NodeIdTaken(node_id) from None

    async def join(self, on_message: OnDelivery, *, prefetch: int) -> None:
        """Return once managers can reach it. Raises what the broker refuses."""
        identity = self._identity
        self._hearing = await self._broker.consume(
            self._heartbeats,
            self._on_word,
            prefetch=100,
            topology=topology.heartbeat_queue(identity.node_id, self._instance),
            on_recovered=self._on_recovered,
        )
        self._on_message, self._prefetch = on_message, prefetch
        await self._listen()
        self.renew()

    async def _listen(self) -> None:
        expires_s = MADE_UP_EXPIRES_S if self._identity.is_made_up else None
        own = topology.node_queue(self._identity.node_id, expires_s=expires_s)
        self._consumer = await self._broker.consume(
            self.queue, self._on_message, prefetch=self._prefetch, topology=own, on_recovered=self._on_recovered
        )
        self._is_listening.set()

    async def listen_anew(self) -> None:
        """With a consumer, a channel and a binding made anew. What is in hand stays so."""
        self._is_listening.clear()
        await self._take_nothing_more()
        if self._is_leaving:
            self._is_listening.set()
            return
        await self._listen()
        self.renew()

    async def set_prefetch(self, prefetch: int) -> None:
        self._prefetch = prefetch
        assert self._consumer is not None
        await self._consumer.set_prefetch(prefetch)

    def _on_recovered(self, _: float) -> None:
        """Whatever managers said meanwhile is lost, and they may take us for gone."""
        self.renew()

    def duties(self) -> list[Coroutine[Any, Any, None]]:
        """What runs as long as the node does; one that raises makes it deaf."""
        assert self._hearing is not None
        polls = [] if self._page is None else [self._poll(self._page)]
        return [self._hearing.wait_ended(), self._wait_ended(), self._end_if_taken(), *polls]

    async def _wait_ended(self) -> None:
        """As a consumer's own, whichever it is by now."""
        consumer = None
        while consumer is not self._consumer:
            consumer = self._consumer
            assert consumer is not None
            await consumer.wait_ended()
            await self._is_listening.wait()

    async def _end_if_taken(self) -> None:
        await self._is_taken.wait()
        await self._take_nothing_more()
        raise NodeIdTaken(self._identity.node_id)

    # --- Hearing --------------------------------------------------------------------------------------

    def _on_word(self, delivery: Delivery) -> None:
        """A heartbeat, or an acknowledgement: of any node, where it came by the key that they share."""
        delivery.settle()
        try:
            if delivery.exchange == topology.MANAGER_AVAILABLE:
                self._on_heartbeat(sapparchi.decode(delivery.message.body, Heartbeat))
            else:
                self._on_ack(sapparchi.decode(delivery.message.body, RegistrationAck), delivery.message.headers)
        except Undecodable as exc:
            log.debug("word_not_understood", exchange=delivery.exchange, key=delivery.key, reason=str(exc))

    def _on_heartbeat(self, heartbeat: Heartbeat) -> None:
        if heartbeat.available:
            self.heard_time(heartbeat.ts)
            self._feed(registration.Heard(heartbeat.ts, heartbeat.force_register))

    def _on_ack(self, ack: RegistrationAck, headers: Mapping[str, HeaderValue]) -> None:
        """A manager of ours says whose registration it means: another one may claim this id."""
        if ack.node_id != self._identity.node_id or headers.get(sapparchi.INSTANCE, self._instance) != self._instance:
            return
        if headers.get(sapparchi.TAKEN) is True:
            self._on_taken()
            return
        if self._is_leaving:
            return
        if self.state is not State.REGISTERED:
            log.info("node_registered", node_id=ack.node_id, actions=len(ack.actions))
        if missing := sorted(set(self._urns) - set(ack.actions)):
            log.warning("actions_not_accepted", node_id=ack.node_id, actions=missing[:10])
        self._feed(registration.Acknowledged())

    def _on_taken(self) -> None:
        if not self._is_taken.is_set():
            log.error("node_id_taken", node_id=self._identity.node_id)
            self._is_taken.set()
            self._is_leaving = True
            self._set_timer(None)

    async def _poll(self, page: HealthPage) -> None:
        while True:
            self._feed(registration.Polled(await page.is_up()))
            await asyncio.sleep(POLL_EVERY_S)

    def _feed(self, event: registration.Event) -> None:
        if self._is_leaving:
            return
        before = self.state
        self._view, intent = registration.on(self._view, event, self._loop.time())
        if registration.fell_silent(before, self.state, event):
            log.warning("managers_silent", node_id=self._identity.node_id)
        if intent is not None and not intent.is_forced:
            log.warning("registration_not_acknowledged", node_id=self._identity.node_id, remedy=UNANSWERED_REMEDY)
        if intent is not None:
            self._broker.post(_registration(self.said(is_forced=intent.is_forced)), _heard_nothing)
        self._set_timer(registration.due_s(self._view))

    def _set_timer(self, due_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if due_s is None else self._loop.call_at(due_s, self._feed, registration.Ticked())

    def said(self, *, is_forced: bool = True, is_leaving: bool = False, leaves: tuple[str, ...] = ()) -> Message:
        """Its registration, by whichever way that goes; without actions where it leaves. `leaves`: these ways alone."""
        identity = self._identity
        closed = ",".join(leaves if is_leaving else self._closed())
        headers: dict[str, HeaderValue] = {sapparchi.CLOSED: closed} if closed else {}
        headers |= {sapparchi.LINK: self._links} if self._links else {}
        said = Registration(
            node_id=identity.node_id,
            endpoint=identity.endpoint,
            layer=identity.layer,
            type=TYPE,
            actions=[] if is_leaving else self._urns,
            force_register=is_forced,
        )
        return Message(
            body=sapparchi.encode(said),
            content_type=ContentType.JSON.value,
            headers={**self._fixed_headers, **headers, sapparchi.LOAD: round(self._load(), 3)},
            reply_to=self._heartbeats,  # all nodes share the published key
            expiration_s=REGISTRATION_TTL_S,
        )

    # --- Leaving --------------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Say so, if anybody can hear it: managers send nothing more, or find out by what comes back."""
        self._is_leaving = True
        self._set_timer(None)
        with suppress(CanoaError, TimeoutError):
            async with asyncio.timeout(LEAVE_WITHIN_S):
                await self._broker.publish(_registration(self.said(is_leaving=True)))

    async def take_the_rest(self) -> None:
        """Return once the queue is empty, or not in time: what is in it is being given back meanwhile. It is not ours
        to empty where another node has the id."""
        if self._is_taken.is_set():
            return
        with suppress(CanoaError, TimeoutError):
            async with asyncio.timeout(EMPTY_WITHIN_S):
                await self._wait_empty()
        await self._take_nothing_more()

    async def _take_nothing_more(self) -> None:
        assert self._consumer is not None
        with suppress(CanoaError, TimeoutError):
            async with asyncio.timeout(LEAVE_WITHIN_S):
                await self._consumer.cancel()

    async def _wait_empty(self) -> None:
        while True:
            if not (await self._broker.depth(self.queue)).messages:
                return
            await asyncio.sleep(LOOK_AGAIN_S)

    async def aclose(self) -> None:
        """Take the queues of our own along; without a link they expire by themselves."""
        with suppress(CanoaError, TimeoutError):
            async with asyncio.timeout(LEAVE_WITHIN_S):
                if self._hearing is not None:
                    await self._hearing.cancel()
                    await self._broker.delete_queue(self._hearing.queue)
                if self._identity.is_made_up and not (await self._broker.depth(self.queue)).messages:
                    await self._broker.delete_queue(self.queue)


def _registration(said: Message) -> Publication:
    return Publication(message=said, exchange=topology.AMQ_TOPIC, key=topology.NODES_REGISTER, mandatory=False)


def _heard_nothing(_: PublishOutcome) -> None:
    """A registration that got lost is made good by the next heartbeat."""
