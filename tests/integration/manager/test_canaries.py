"""Canaries tell nodes that can receive work from those that are deaf, cut off or dead; all managers agree on it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.integration.manager.test_nodes_life import state
from tests.integration.manager.test_registering import GW, chosen
from tests.integration.manager.town import Town
from tests.integration.queue_thief import unbound
from tests.unit.manager.words import RESIZE

from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.broker.rabbitmq import RabbitBroker
from canoa.execution import proof
from canoa.execution.health import Health
from canoa.execution.proof import Proof
from canoa.execution.step_moves import Need
from canoa.manager import canaries
from canoa.manager.catalogue import Presence
from canoa.manager.node_settings import NodeSettings
from canoa.wire import canary, sapparchi
from canoa.wire.sapparchi import NodeMessage

if TYPE_CHECKING:
    from canoa.broker.port import Consumer, Delivery
    from canoa.manager.nodes import Nodes
    from canoa.store.routed_port import FullStore
    from canoa.testing.pytest_plugin import ProxyFactory

CANARIES = {sapparchi.CANARIES: True}


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds become tenths."""
    for name in ("EVERY_S", "AGAIN_S", "ANSWER_WITHIN_S"):
        monkeypatch.setattr(proof, name, getattr(proof, name) / 10)
    monkeypatch.setattr(canaries, "LOOK_EVERY_S", 0.05)


class PlayedNode:
    """Listens as a node of ours does, and answers canaries while it `hears`."""

    def __init__(self, town: Town, *, hears: bool = True, prefetch: int = 10) -> None:
        self.hears = hears
        self.taken: list[Delivery] = []
        self._town = town
        self._prefetch = prefetch
        self._consumer: Consumer

    async def listen(self) -> None:
        queue = topology.node_queue_name(GW)
        self._consumer = await self._town.broker.consume(
            queue, self._on_delivery, prefetch=self._prefetch, topology=topology.node_queue(GW)
        )

    async def join(self, *, instance: str = "i1") -> None:
        await self.listen()
        await self.register(instance=instance)

    async def register(self, *, instance: str = "i1") -> None:
        before = len(self._town.acks())
        await self._town.register(GW, instance=instance, headers=CANARIES)
        await self._town.until(lambda: len(self._town.acks()) > before)

    async def stop_listening(self) -> None:
        await self._consumer.cancel()

    def _on_delivery(self, delivery: Delivery) -> None:
        self.taken.append(delivery)
        request = sapparchi.decode(delivery.message.body, NodeMessage)
        if request.action_to != sapparchi.CANARY:
            return  # it is being run
        delivery.settle()
        if self.hears:
            answer = canary.answer(request, GW, reply_to=delivery.message.reply_to)
            self._town.broker.post(answer, lambda _: None)


def proven(manager: Nodes) -> str:
    return manager.catalogue.rows[GW].proof


def ruled_out(manager: Nodes) -> str:
    [considered] = manager.explain(Need(RESIZE, manager.catalogue.now_ms())).considered
    return considered.ruled_out


async def test_a_node_that_answers_its_canaries_is_online_and_they_are_signs_of_life(town: Town) -> None:
    manager = await town.start_manager()
    node = PlayedNode(town)

    await node.join()
    await town.until(lambda: proven(manager) == Proof.ONLINE)
    await town.until(lambda: manager.canaries.counts["answered"] >= 2)

    assert (state(manager), chosen(manager)) == (Health.OK, GW)
    assert manager.catalogue.signs.age_s(GW, manager.catalogue.clock.monotonic_s()) < proof.EVERY_S
    row = await town.row()
    assert row is not None
    assert row.proof == Proof.ONLINE


async def test_a_node_that_listens_and_does_not_answer_is_deaf_and_gets_no_work_until_it_does(town: Town) -> None:
    manager = await town.start_manager()
    node = PlayedNode(town, hears=False)

    await node.join()
    await town.until(lambda: proven(manager) == Proof.DEAF)

    assert (state(manager), chosen(manager)) == (Presence.DEAF, None)
    assert ruled_out(manager) == "deaf: what is sent to its queue is not answered"
    assert manager.catalogue.counted() == {("FOG", "DEAF"): 1}

    await node.register()
    assert proven(manager) == Proof.DEAF  # it lives, and hears no better for it
    node.hears = True
    await town.until(lambda: chosen(manager) == GW)
    assert proven(manager) == Proof.ONLINE


async def test_a_deaf_node_that_is_started_again_gets_work_at_once(memory_town: Town) -> None:
    town = memory_town
    manager = await town.start_manager()
    node = PlayedNode(town, hears=False)
    await node.join()
    await town.until(lambda: proven(manager) == Proof.DEAF)

    await node.register(instance="i2")

    assert (proven(manager), chosen(manager)) == (Proof.UNPROVEN, GW)


async def test_a_node_whose_listener_is_gone_is_cut_off_then_dead_and_back_by_the_canary_that_waits_for_it(
    town: Town,
) -> None:
    manager = await town.start_manager(NodeSettings(grace_s=3.0))
    node = PlayedNode(town)
    await node.join()
    await town.until(lambda: proven(manager) == Proof.ONLINE)

    await node.stop_listening()
    await town.until(lambda: proven(manager) == Proof.CUT_OFF)
    assert (state(manager), chosen(manager)) == (Presence.CUT_OFF, None)
    assert ruled_out(manager).startswith("cut off: ")
    await town.until(lambda: proven(manager) == Proof.DEAD)
    assert (state(manager), chosen(manager)) == (Presence.DEAD, None)

    await node.listen()
    await town.until(lambda: chosen(manager) == GW)
    assert proven(manager) == Proof.ONLINE


async def test_a_node_that_says_how_long_it_may_be_cut_off_has_that_time(memory_town: Town) -> None:
    town = memory_town
    manager = await town.start_manager(NodeSettings(grace_s=3600.0))
    await town.register(GW, instance="i1", headers={**CANARIES, sapparchi.GRACE: 0.5})
    await town.until(town.acks)
    await town.broker.declare(*topology.node_queue(GW))

    await town.until(lambda: proven(manager) == Proof.DEAD)


async def test_a_node_without_a_queue_is_dead_and_returns_with_its_registration(town: Town) -> None:
    manager = await town.start_manager()
    node = PlayedNode(town)

    await node.register()
    await town.until(lambda: proven(manager) == Proof.DEAD)
    assert chosen(manager) is None

    await node.join()
    await town.until(lambda: chosen(manager) == GW)
    assert proven(manager) == Proof.ONLINE


async def test_a_node_that_offers_no_canaries_is_unproven_gets_work_and_none_of_them(town: Town) -> None:
    manager = await town.start_manager()
    node = PlayedNode(town)
    await node.listen()

    await town.register(GW)
    await town.until(town.acks)
    for _ in range(3):
        await manager.canaries.look()

    assert (proven(manager), chosen(manager)) == (Proof.UNPROVEN, GW)
    assert manager.canaries.counts["sent"] == 0
    assert node.taken == []


async def test_a_node_whose_hands_are_full_of_work_is_not_deaf(town: Town) -> None:
    manager = await town.start_manager()
    node = PlayedNode(town, prefetch=1)
    await node.join()
    await town.until(lambda: proven(manager) == Proof.ONLINE)
    await town.send_step(manager)
    work = NodeMessage(action_to="urn:sapparchi:Action:shop.resize", request_id="any.0.1.1")
    message = Message(body=sapparchi.encode(work), headers={sapparchi.NODE_ID: GW}, message_id="any.0.1.1")
    await town.broker.publish(Publication(message=message, exchange=topology.NODE_UNICAST, key=""))
    await town.until(lambda: node.taken and not node.taken[-1].is_settled)

    missed = manager.canaries.counts["missed"]
    await town.until(lambda: manager.canaries.counts["missed"] >= missed + 3)

    assert (proven(manager), chosen(manager)) == (Proof.ONLINE, GW)


@pytest.mark.rabbitmq
async def test_a_node_whose_queue_is_unbound_is_deaf_though_it_listens(
    rabbit_url: str, routed_store: FullStore
) -> None:
    async with Town(lambda: RabbitBroker(rabbit_url), routed_store) as town:
        manager = await town.start_manager()
        node = PlayedNode(town)
        await node.join()
        await town.until(lambda: proven(manager) == Proof.ONLINE)

        await unbound(rabbit_url, GW)

        await town.until(lambda: proven(manager) == Proof.DEAF)


@pytest.mark.rabbitmq
async def test_a_manager_that_hears_nothing_itself_takes_nobody_for_deaf(
    rabbit_url: str, routed_store: FullStore, tcp_proxy: ProxyFactory
) -> None:
    proxy = await tcp_proxy(rabbit_url)
    async with Town(lambda: RabbitBroker(rabbit_url), routed_store) as town:
        manager = await town.start_manager(broker=RabbitBroker(proxy.via(rabbit_url)))
        node = PlayedNode(town)
        await node.join()
        await town.until(lambda: proven(manager) == Proof.ONLINE)

        proxy.stall()
        sent = manager.canaries.counts["sent"]
        await town.until(lambda: manager.canaries.counts["sent"] > sent)
        await asyncio.sleep(3 * (proof.AGAIN_S + proof.ANSWER_WITHIN_S))  # two misses would have made it deaf
        proxy.resume()
        answered = manager.canaries.counts["answered"]
        await town.until(lambda: manager.canaries.counts["answered"] > answered)

        assert manager.canaries.counts["missed"] == 0
        assert proven(manager) == Proof.ONLINE


async def test_all_managers_agree_and_the_next_one_that_leads_goes_on(memory_town: Town) -> None:
    town = memory_town
    first, second = [await town.start_manager() for _ in range(2)]
    await town.until(lambda: first.heart.is_leading)
    node = PlayedNode(town, hears=False)
    await node.join()
    await town.until(lambda: proven(first) == Proof.DEAF)
    await town.until(lambda: chosen(second) is None)
    assert state(second) == Presence.DEAF
    assert second.canaries.counts["sent"] == 0

    await town.stop(first)
    node.hears = True

    await town.until(lambda: chosen(second) == GW)
    assert proven(second) == Proof.ONLINE


async def test_an_answer_that_came_to_another_manager_is_told_to_the_one_that_asked(memory_town: Town) -> None:
    town = memory_town
    first, second = [await town.start_manager() for _ in range(2)]
    await town.until(lambda: first.heart.is_leading)
    node = PlayedNode(town, hears=False)
    await node.join()
    await town.until(lambda: node.taken)

    asked = sapparchi.decode(node.taken[-1].message.body, NodeMessage)
    second.canaries.heard_by_the_way(asked.request_id)

    await town.until(lambda: first.canaries.counts["answered"])


async def test_a_guessed_answer_proves_nothing(memory_town: Town) -> None:
    town = memory_town
    manager = await town.start_manager()
    node = PlayedNode(town, hears=False)
    await node.join()
    await town.until(lambda: proven(manager) == Proof.DEAF)

    assert not manager.canaries.heard(sapparchi.canary_id(GW, "0" * 16))
    await manager.canaries.look()

    assert proven(manager) == Proof.DEAF


async def test_a_node_that_a_step_could_not_be_brought_to_is_shown_so_and_back_once_it_answers(town: Town) -> None:
    manager = await town.start_manager()
    node = PlayedNode(town)
    await node.join()
    await town.until(lambda: proven(manager) == Proof.ONLINE)
    await town.send_step(manager)

    await node.stop_listening()
    await town.until(lambda: town.lost)
    assert town.lost == [(GW, "nobody listens on its queue")]
    assert state(manager) == Presence.CUT_OFF

    await node.listen()
    await town.until(lambda: chosen(manager) == GW)
