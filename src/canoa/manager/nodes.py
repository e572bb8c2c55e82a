"""All that a manager knows of nodes and does for them, put together: one thing to start, watch and stop."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from canoa.broker import topology
from canoa.clock import SystemClock
from canoa.errors import CanoaError
from canoa.execution.step_moves import StepEnd, StepLost
from canoa.manager.budgets import Budgets
from canoa.manager.canaries import Canaries
from canoa.manager.catalogue import Catalogue
from canoa.manager.explaining import explained
from canoa.manager.following import Follower
from canoa.manager.health import HealthNotes
from canoa.manager.heartbeat import Heart
from canoa.manager.inboxes import Inboxes, InboxKeeper
from canoa.manager.links import Links
from canoa.manager.node_settings import NodeSettings
from canoa.manager.node_telling import NodeTelling
from canoa.manager.probing import Prober
from canoa.manager.registering import PREFETCH, Registrations
from canoa.manager.router import Router
from canoa.manager.routing.strategies import Strategies
from canoa.manager.stranded import Stranded
from canoa.manager.trimming import Trimmer
from canoa.manager.watching import Watching
from canoa.transports.amqp import AmqpTransport, TopicTransport
from canoa.transports.calling import Caller
from canoa.transports.compressing import Compressing
from canoa.transports.http import HttpTransport
from canoa.transports.reaching import Reaching
from canoa.vocabulary import AMQP, HTTP, MQTT
from canoa.wire.sapparchi import request_id

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence

    from canoa.broker.events import Events
    from canoa.broker.port import Broker, Consumer
    from canoa.clock import Clock
    from canoa.execution.explaining import Explained
    from canoa.execution.step_moves import Need
    from canoa.manager.probing import Lose
    from canoa.store.routed_port import FullStore, Move, Moved, NodeRow
    from canoa.vocabulary import NodeId


class Nodes:
    """On a broker and a store that are open; it closes neither. `manager_id`: of this process, and no other's.

    The steps' side needs four things of it: `router` for `advance`, `on_moved` for all moves, `loops` to watch, and
    it gives `lose`, by which a node's steps go to others. `events`: None where nobody is told."""

    def __init__(
        self,
        broker: Broker,
        store: FullStore,
        *,
        manager_id: str,
        lose: Lose,
        settings: NodeSettings | None = None,
        clock: Clock | None = None,
        events: Events | None = None,
    ) -> None:
        settings = settings or NodeSettings()
        self._broker = broker
        self._strategies = Strategies(settings.routing, start=random.randrange(1_000_000))
        clock = clock or SystemClock()
        self.budgets = Budgets(settings.link_budgets, clock)
        self.inboxes = Inboxes(settings.inbox)
        self.caller = Caller(settings.endpoints, own_ports=settings.own_ports)
        self.catalogue = Catalogue(
            settings,
            clock,
            on_taken=self._know,
            on_forgotten=self._forget,
            endpoint_refusal=self.endpoint_refusal,
        )
        self.links = Links(self.catalogue.rows, self.budgets)
        self.watching = Watching(self.catalogue.clock)
        self.http = HttpTransport(self.caller)
        self.reaching = Reaching(
            {
                AMQP: AmqpTransport(broker, answers=topology.answers_queue_name(manager_id)),
                MQTT: TopicTransport(broker),
                HTTP: self.http,
            },
            row=lambda node_id: self.catalogue.rows.get(node_id),
            compressing=Compressing(settings.compression),
            meter=self.links,
        )
        self.telling = NodeTelling(events, self.catalogue, is_leading=lambda: self.heart.is_leading)
        self.follower = Follower(
            broker,
            store,
            self.catalogue,
            manager_id=manager_id,
            watching=self.watching,
            budgets=self.budgets,
            telling=self.telling,
        )
        self.health = HealthNotes(self.catalogue, self.follower)
        self.router = Router(
            self.catalogue,
            self._strategies,
            settings=settings.breaker,
            watching=self.watching,
            note=self.health.post_from_any_thread,
            budgets=self.budgets,
            inboxes=self.inboxes,
        )
        self.inbox_keeper = InboxKeeper(self.inboxes, store)
        self.registrations = Registrations(
            broker,
            self.catalogue,
            self.follower,
            reaching=self.reaching,
            caller=self.caller,
            on_return=self.health.close,
        )
        self.heart = Heart(broker, store, manager_id=manager_id, clock=self.catalogue.clock)
        self.prober = Prober(
            self.reaching,
            store,
            catalogue=self.catalogue,
            follower=self.follower,
            is_leading=lambda: self.heart.is_leading,
            lose=lose,
        )
        self.canaries = Canaries(
            broker,
            store,
            catalogue=self.catalogue,
            follower=self.follower,
            watching=self.watching,
            reaching=self.reaching,
            is_leading=lambda: self.heart.is_leading,
            manager_id=manager_id,
            on_return=self.health.close,
        )
        self.follower.on_canary = self.canaries.heard
        self.stranded = Stranded(self.reaching, store, self.catalogue.rows)
        self.trimmer = Trimmer(broker, is_leading=lambda: self.heart.is_leading)
        self.consumers: list[Consumer] = []

    async def open(self) -> None:
        """Return once registrations are taken and the router knows what the store knows."""
        await self._broker.declare(*topology.manager())
        await self.follower.open()
        await self.inbox_keeper.look()
        registrations = await self._broker.consume(
            topology.NODES_REGISTER, self.registrations.on_delivery, prefetch=PREFETCH, topology=topology.manager()
        )
        assert self.follower.consumer is not None
        self.consumers = [self.follower.consumer, registrations, await self.canaries.open()]

    def on_moved(self, written: Sequence[tuple[Move, Moved]]) -> None:
        """To be told of every move that was written."""
        for node_id in {moved.node_id for move, moved in written if isinstance(move, StepEnd)}:
            if node_id is not None:
                self.watching.answered(node_id)
        self.health.on_moved(written)
        if self.reaching.under_way:
            self.reaching.under_way.drop(_ended(written))
        self.router.ended(written)  # last: what it teaches must not keep others from hearing of it

    def explain(self, need: Need) -> Explained:
        """Where an attempt would go now, and why. Raises `UnknownAction`."""
        return explained(self.catalogue, self._strategies, self.router, need)

    def endpoint_refusal(self, row: NodeRow) -> str:
        """Why its endpoint is not called; empty: it may be, or it has none."""
        refusal = self.caller.refusal(row)
        return "" if refusal is None else refusal.why

    def loops(self) -> dict[str, Coroutine[Any, Any, None]]:
        """By name; whoever runs them ends when one of them raises, and cancels them before `aclose`."""
        watched = {f"watch[{each.queue}]": each.wait_ended() for each in self.consumers}
        return watched | {
            "canaries": self.canaries.run(),
            "catalogue": self.follower.run(),
            "health": self.health.run(),
            "heartbeat": self.heart.run(),
            "hello": self.heart.say_hello(),
            "inboxes": self.inbox_keeper.run(),
            "probe": self.prober.run(),
            "stranded": self.stranded.run(),
            "trim": self.trimmer.run(),
        }

    def _know(self, row: NodeRow, before: NodeRow | None) -> None:
        self.budgets.know(row)
        self.telling.on_taken(row, before)
        if before is not None:
            self.reaching.know(row, before)

    def _forget(self, node_id: NodeId) -> None:
        self._strategies.forget(node_id)
        self.reaching.forget(node_id)
        self.links.forget(node_id)
        self.inboxes.forget(node_id)

    async def aclose(self) -> None:
        for consumer in self.consumers:
            with suppress(CanoaError):
                await consumer.cancel()
        await self.registrations.stop()
        await self.heart.stop()
        await self.canaries.aclose()
        await self.follower.aclose()
        await self.http.aclose()
        await self.caller.aclose()


def _ended(written: Sequence[tuple[Move, Moved]]) -> Iterator[str]:
    """Ids of requests that are not out any more."""
    for move, moved in written:
        if isinstance(move, StepEnd | StepLost):
            yield request_id(move.task_id, move.step, move.attempt, move.send)
        yield from moved.cancel
