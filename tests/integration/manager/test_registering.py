"""Nodes register by the published wire, floods cost little, and an id belongs to one node."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from tests.unit.manager.words import RESIZE, registration

from canoa.broker import topology
from canoa.broker.port import Message, Queue
from canoa.execution.health import Sign
from canoa.execution.step_moves import Need
from canoa.manager.claims import Reason
from canoa.manager.node_settings import NodeSettings
from canoa.store.routed_port import HealthNote
from canoa.vocabulary import NodeId
from canoa.wire import sapparchi

if TYPE_CHECKING:
    from tests.integration.manager.town import Town

    from canoa.broker.port import Delivery, OnDelivery
    from canoa.manager.nodes import Nodes

GW = NodeId("gw-7")
PRICE_URN = "urn:sapparchi:Action:shop.price"
RESIZE_URN = "urn:sapparchi:Action:shop.resize"


def chosen(manager: Nodes) -> str | None:
    choice = manager.router.choose(Need(RESIZE, manager.catalogue.now_ms()))
    return choice.node_id if choice else None


async def test_a_bare_node_registers_is_acknowledged_and_gets_work(town: Town) -> None:
    manager = await town.start_manager()

    await town.register(actions=[RESIZE_URN, "urn:sapparchi:Action:no good"])
    await town.until(town.acks)

    (ack,) = town.acks()
    assert ack.keys() == {"token", "nodeId", "actions"}
    assert (ack["nodeId"], ack["actions"]) == (GW, [RESIZE_URN])
    assert chosen(manager) == GW
    row = await town.row()
    assert row is not None
    assert ack["token"] == row.token != ""


async def test_the_token_of_a_node_stays_when_it_changes(memory_town: Town) -> None:
    await memory_town.start_manager(NodeSettings(ack_every_s=0.01))
    await memory_town.register()
    await memory_town.until(memory_town.acks)

    await memory_town.register(actions=[PRICE_URN])
    await memory_town.until(lambda: [ack for ack in memory_town.acks() if ack["actions"] == [PRICE_URN]])

    assert len({ack["token"] for ack in memory_town.acks()}) == 1


async def test_a_token_does_not_outlive_its_node_another_instance_gets_one_of_its_own(memory_town: Town) -> None:
    manager = await memory_town.start_manager()

    async def registered(instance: str, *actions: str) -> str:
        """Its token, once it is known to offer that."""
        await memory_town.register(instance=instance, actions=list(actions))
        await memory_town.until(lambda: offered_by(manager) == (instance, len(actions)))
        return manager.catalogue.rows[GW].token

    first = await registered("first", RESIZE_URN)
    assert first == await registered("first", RESIZE_URN, PRICE_URN)
    await registered("first")

    assert await registered("second", RESIZE_URN) not in ("", first)


def offered_by(manager: Nodes) -> tuple[str, int] | None:
    row = manager.catalogue.rows.get(GW)
    return None if row is None else (row.instance, len(row.actions))


async def test_what_was_registered_while_no_manager_ran_is_not_lost(town: Town) -> None:
    await town.stop(await town.start_manager())
    await town.register()

    manager = await town.start_manager()

    await town.until(lambda: chosen(manager) == GW)


async def test_a_manager_that_starts_knows_all_nodes_at_once(town: Town) -> None:
    await town.start_manager()
    await town.register()
    await town.until(town.acks)

    assert chosen(await town.start_manager()) == GW


async def test_managers_hear_of_each_others_nodes(town: Town) -> None:
    managers = [await town.start_manager() for _ in range(2)]

    await town.register()

    await town.until(lambda: [chosen(each) for each in managers] == [GW, GW], within_s=2.0)  # less than a poll


async def test_a_node_that_says_goodbye_gets_no_more_work(town: Town) -> None:
    managers = [await town.start_manager() for _ in range(2)]
    await town.register(instance="i1")
    await town.until(lambda: all(map(chosen, managers)))

    await town.register(instance="i1", actions=[])

    await town.until(lambda: not any(map(chosen, managers)))
    assert all(manager.router.is_known(RESIZE) for manager in managers)
    assert chosen(await town.start_manager()) is None
    assert town.managers[-1].router.is_known(RESIZE)


async def test_a_worker_is_acknowledged_in_its_own_queue_and_no_other_node_hears_it(town: Town) -> None:
    await town.start_manager()
    own = topology.heartbeat_queue_name(GW, "i1")
    heard: list[Delivery] = []
    await town.broker.consume(own, heard.append, prefetch=10, topology=[Queue(name=own, expires_s=60)])

    await town.publish(replace(registration(instance="i1"), reply_to=own), replace(registration("thief"), reply_to=own))
    await town.until(lambda: town.acks("thief") and heard)

    assert town.acks() == []
    assert [json.loads(each.message.body)["nodeId"] for each in heard] == [GW]


# --- Floods ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_forced", [False, True])
async def test_ten_thousand_registrations_in_a_second_are_one_write_per_node_and_change(
    memory_town: Town, is_forced: bool
) -> None:
    town, nodes = memory_town, 100
    manager = await town.start_manager()
    flood = [registration(f"n{number % nodes}", forceRegister=is_forced) for number in range(10_000)]

    began_s = time.perf_counter()
    await town.publish(*flood)
    await town.until(lambda: manager.registrations.taken == 10_000)
    took_s = time.perf_counter() - began_s
    await town.until(lambda: all(len(town.acks(f"n{number}")) >= 2 for number in range(nodes)))

    rows = await town.store.nodes()
    print(f"10,000 registrations of {nodes} nodes taken in {took_s:.2f} s")
    assert (len(rows), max(row.version for row in rows)) == (nodes, nodes)
    assert all(len(town.acks(f"n{number}")) <= 2 + took_s for number in range(nodes))


async def test_in_a_flood_the_last_change_of_a_node_is_what_stays(memory_town: Town) -> None:
    town = memory_town
    await town.start_manager()
    urns = [[f"urn:sapparchi:Action:shop.a{number}"] for number in range(1000)]

    await town.publish(*(registration(actions=actions, forceRegister=True) for actions in urns))
    await town.until(lambda: any(ack["actions"] == urns[-1] for ack in town.acks()))

    row = await town.row()
    assert row is not None
    assert row.actions == ("shop.a999",)
    assert row.version < 100  # far fewer writes than changes: what comes while the store is busy goes together


async def test_an_unchanged_registration_is_written_again_once_the_fingerprint_is_old(memory_town: Town) -> None:
    town = memory_town
    await town.start_manager(NodeSettings(fingerprint_ttl_s=0.0, ack_every_s=0.01))
    await town.register()
    await town.until(town.acks)
    first = await town.row()

    await town.register()
    await town.until(lambda: len(town.acks()) > 1)

    again = await town.row()
    assert first is not None
    assert again is not None
    assert again.version > first.version
    assert again.registered_ms == first.registered_ms


async def test_a_load_is_written_when_it_moved_by_much(memory_town: Town) -> None:
    town = memory_town
    await town.start_manager(NodeSettings(ack_every_s=0.01))
    for load in (0.0, 0.1, 0.9):
        before = len(town.acks())
        await town.register(headers={sapparchi.LOAD: load})
        await town.until(lambda before=before: len(town.acks()) > before)  # type: ignore[misc]

    row = await town.row()
    assert row is not None
    assert (row.load, row.version) == (0.9, 2)


# --- Bad input ---------------------------------------------------------------------------------------------


async def test_hostile_registrations_are_counted_and_harm_nobody(town: Town) -> None:
    manager = await town.start_manager()

    await town.publish(
        Message(body=b"\x00" * (sapparchi.MAX_REGISTRATION_BYTES + 1)),
        Message(body=b'{"nodeId":'),
        registration("../../etc"),
        registration(layer="MOON"),
        registration(actions=["urn:sapparchi:Action:*"]),
        registration(headers={sapparchi.LIMITS: "{", sapparchi.INSTANCE: 7, sapparchi.LOAD: "high"}),
    )
    await town.until(town.acks)

    assert manager.registrations.refused == {
        Reason.OVERSIZED: 1,
        Reason.MALFORMED: 2,
        Reason.NODE_ID: 1,
        Reason.ACTIONS: 1,
    }
    assert [row.node_id for row in await town.store.nodes()] == [GW]


async def test_more_nodes_than_a_manager_can_keep_are_refused(memory_town: Town) -> None:
    town = memory_town
    manager = await town.start_manager(NodeSettings(max_nodes=2))
    for name in ("a", "b"):
        await town.register(name)
        await town.until(lambda name=name: town.acks(name))  # type: ignore[misc]

    await town.register("c")
    await town.until(lambda: manager.registrations.refused)

    assert manager.registrations.refused == {Reason.TOO_MANY: 1}
    assert len(await town.store.nodes()) == 2


async def test_many_new_nodes_at_once_do_not_pass_the_limit(memory_town: Town) -> None:
    manager = await memory_town.start_manager(NodeSettings(max_nodes=10))

    await memory_town.publish(*(registration(f"n{number}") for number in range(50)))
    await memory_town.until(lambda: manager.registrations.refused.total() == 40 and manager.catalogue.rows)

    assert manager.registrations.refused == {Reason.TOO_MANY: 40}
    assert len(await memory_town.store.nodes()) == 10


async def test_nodes_that_left_first_make_room_for_new_ones(memory_town: Town) -> None:
    town = memory_town
    manager = await town.start_manager(NodeSettings(max_nodes=3, ack_every_s=0.01))
    for name, actions in (("a", [RESIZE_URN]), ("b", [RESIZE_URN]), ("c", [RESIZE_URN]), ("b", []), ("a", [])):
        await town.register(name, instance="i", actions=actions)
        await town.until(lambda name=name, actions=actions: offers(manager, name) == len(actions))  # type: ignore[misc]

    await town.register("d")
    await town.until(lambda: town.acks("d"))

    assert {row.node_id for row in await town.store.nodes()} == set(manager.catalogue.rows) == {"a", "c", "d"}


def offers(manager: Nodes, name: str) -> int | None:
    row = manager.catalogue.rows.get(NodeId(name))
    return None if row is None else len(row.actions)


async def test_a_node_without_queue_and_address_is_known_and_gets_no_work(memory_town: Town) -> None:
    manager = await memory_town.start_manager()

    await memory_town.register("", endpoint="cellar:9")
    await memory_town.until(lambda: memory_town.acks("cellar:9"))

    assert chosen(manager) is None
    assert not manager.router.is_known(RESIZE)
    assert manager.catalogue.counted() == {("FOG", "UNREACHABLE"): 1}


# --- One id, two nodes ---------------------------------------------------------------------------------------


async def test_a_second_live_worker_cannot_take_an_id(town: Town) -> None:
    manager = await town.start_manager()
    await town.listen(GW)
    await town.register(instance="first")
    await town.until(town.acks)

    await town.listen(GW)
    await town.register(instance="second", actions=[PRICE_URN])
    await town.until(lambda: manager.registrations.refused)

    row = await town.row()
    assert row is not None
    assert (row.instance, row.actions) == ("first", (RESIZE,))
    assert manager.registrations.refused == {Reason.RIVAL: 1}


async def test_a_second_live_worker_is_told_that_its_id_is_taken_and_the_first_hears_nothing_of_it(town: Town) -> None:
    await town.start_manager()
    heard: dict[str, list[Message]] = {"first": [], "second": []}
    for instance, inbox in heard.items():
        own = topology.heartbeat_queue_name(GW, instance)
        await town.broker.consume(own, _keeper(inbox), prefetch=10, topology=[Queue(name=own, expires_s=60)])
        await town.listen(GW)
        await town.publish(replace(registration(instance=instance), reply_to=own))
        await town.until(inbox.__len__)

    [kept], [told] = heard["first"], heard["second"]
    assert kept.headers == {sapparchi.INSTANCE: "first"}
    assert told.headers == {sapparchi.INSTANCE: "second", sapparchi.TAKEN: True}
    assert json.loads(told.body) == {"token": "", "nodeId": GW, "actions": []}


def _keeper(inbox: list[Message]) -> OnDelivery:
    def keep(delivery: Delivery) -> None:
        delivery.settle()
        inbox.append(delivery.message)

    return keep


async def test_a_second_live_endpoint_cannot_take_a_foreign_nodes_id(town: Town) -> None:
    manager = await town.start_manager()
    await town.register(endpoint="http://127.0.0.7")
    await town.until(town.acks)

    await town.register(endpoint="http://127.6.6.6", actions=[PRICE_URN])
    await town.until(lambda: manager.registrations.refused)

    row = await town.row()
    assert row is not None
    assert (row.endpoint, row.actions) == ("http://127.0.0.7", (RESIZE,))


async def test_a_worker_killed_and_started_again_gets_in_at_once_with_its_circuits_closed(town: Town) -> None:
    manager = await town.start_manager()
    first = await town.listen(GW)
    await town.register(instance="first")
    await town.until(town.acks)
    now_ms = manager.catalogue.now_ms()
    note = HealthNote(node_id=GW, action="", sign=Sign.FAILED, is_about_node=True, now_ms=now_ms)
    await manager.follower.note_health([note] * 3)
    assert chosen(manager) is None
    await first.cancel()

    await town.listen(GW)
    await town.register(instance="second")

    await town.until(lambda: chosen(manager) == GW)
    row = await town.row()
    assert row is not None
    assert row.instance == "second"


async def test_the_farewell_of_the_old_instance_does_not_take_the_new_one_along(town: Town) -> None:
    manager = await town.start_manager()
    await town.register(instance="new")
    await town.until(town.acks)

    await town.register(instance="old", actions=[])
    await town.register("other")
    await town.until(lambda: town.acks("other"))

    assert GW in {chosen(manager), chosen(manager)}
