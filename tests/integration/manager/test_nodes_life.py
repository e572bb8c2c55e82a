"""Heartbeats, signs of life, circuits and the finding of those that are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.manager.test_registering import GW, chosen
from tests.integration.manager.town import tell
from tests.unit.manager.words import RESIZE

from canoa.broker import topology
from canoa.execution.health import Health
from canoa.execution.step_moves import Verdict
from canoa.manager.catalogue import Presence
from canoa.manager.node_settings import NodeSettings
from canoa.store.routed_port import Moved

if TYPE_CHECKING:
    from tests.integration.manager.town import Town

    from canoa.manager.nodes import Nodes


def ended(step_outcome: str) -> Moved:
    return Moved(verdict=Verdict.TAKEN, node_id=GW, action=RESIZE, step_outcome=step_outcome)


def state(manager: Nodes) -> str:
    return manager.catalogue.state(manager.catalogue.rows[GW], manager.catalogue.now_ms())


async def registered(town: Town, **said: str) -> None:
    await town.register(**said)
    await town.until(town.acks)


# --- Heartbeats -----------------------------------------------------------------------------------------------


async def test_a_manager_that_starts_asks_all_nodes_to_register(town: Town) -> None:
    await town.start_manager()

    await town.until(lambda: len(town.heard[topology.MANAGER_AVAILABLE]) == 2)

    beats = town.heard[topology.MANAGER_AVAILABLE]
    assert [(beat["available"], beat["forceRegister"], beat["schema"]) for beat in beats] == [
        (True, False, 1),
        (True, True, 1),
    ]
    assert beats[0]["ts"] < beats[1]["ts"]


async def test_when_the_beating_manager_stops_another_beats(memory_town: Town) -> None:
    town = memory_town
    first = await town.start_manager()
    await town.until(lambda: town.heard[topology.MANAGER_AVAILABLE])
    await town.start_manager()

    await town.stop(first)
    town.heard[topology.MANAGER_AVAILABLE].clear()

    await town.until(lambda: [beat for beat in town.heard[topology.MANAGER_AVAILABLE] if not beat["forceRegister"]])


async def test_within_ten_seconds_another_beats_for_a_manager_that_was_killed(memory_town: Town) -> None:
    town = memory_town
    first = await town.start_manager()
    await town.until(lambda: first.heart.is_leading)
    second = await town.start_manager()

    await town.kill(first)

    await town.until(lambda: second.heart.is_leading, within_s=10.0)


# --- Silence ----------------------------------------------------------------------------------------------------


async def test_a_silent_node_is_shown_and_left_out_until_it_registers_again(memory_town: Town) -> None:
    town = memory_town
    manager = await town.start_manager(NodeSettings(silence_s=0.2))
    await registered(town)

    await town.until(lambda: state(manager) == Presence.SILENT)
    assert chosen(manager) is None

    await town.register()
    await town.until(lambda: chosen(manager) == GW)


async def test_signs_of_life_are_written_together_and_are_no_change(memory_town: Town) -> None:
    town = memory_town
    manager = await town.start_manager()
    await registered(town)
    before = await town.row()
    assert before is not None

    manager.catalogue.heard(GW)
    await manager.follower.write_signs()

    after = await town.row()
    assert after is not None
    assert after.seen_ms >= before.seen_ms
    assert after.version == before.version


async def test_a_node_that_was_forgotten_is_known_nowhere(memory_town: Town) -> None:
    town = memory_town
    manager = await town.start_manager(NodeSettings(forget_after_s=-60, touch_every_s=3600))
    await registered(town)

    await manager.follower.forget()

    assert chosen(manager) is None
    assert not manager.router.is_known(RESIZE)
    assert await town.row() is None


# --- Circuits ---------------------------------------------------------------------------------------------------


async def test_a_node_that_never_answers_is_down_for_all_managers(town: Town) -> None:
    managers = [await town.start_manager() for _ in range(2)]
    await registered(town)
    await town.until(lambda: all(map(chosen, managers)))

    for _ in range(3):
        tell(managers[0], ended("timed_out"))

    await town.until(lambda: not any(map(chosen, managers)), within_s=2.0)  # less than a poll
    assert {state(manager) for manager in managers} == {Health.DOWN}


async def test_a_raised_exception_says_nothing_against_the_node(memory_town: Town) -> None:
    town = memory_town
    manager = await town.start_manager()
    await registered(town)
    for outcome in ("timed_out", "timed_out", "failed", "timed_out"):
        tell(manager, ended(outcome))

    await town.until(lambda: state(manager) == Health.WARNING)

    assert chosen(manager) == GW
    assert [row.failures for row in await town.store.breakers()] == [1, 1]


async def test_success_on_a_closed_circuit_writes_nothing(memory_town: Town) -> None:
    town = memory_town
    manager = await town.start_manager()
    await registered(town)

    for _ in range(100):
        tell(manager, ended("ok"))
    tell(manager, ended("timed_out"))
    await town.until(lambda: manager.catalogue.breakers)

    rows = await town.store.breakers()
    assert [(row.action, row.failures) for row in sorted(rows, key=lambda row: row.action)] == [("", 1), (RESIZE, 1)]


async def test_a_node_without_a_queue_gets_no_more_work_until_it_registers_again(town: Town) -> None:
    managers = [await town.start_manager() for _ in range(2)]
    await registered(town, instance="i1")
    await town.until(lambda: all(map(chosen, managers)))

    for _ in range(10):
        tell(managers[0], ended("lost"))
    await town.until(lambda: not any(map(chosen, managers)), within_s=2.0)
    assert {state(manager) for manager in managers} == {Presence.LEFT}

    await town.register(instance="i1")
    await town.until(lambda: [chosen(manager) for manager in managers] == [GW, GW], within_s=4.0)


async def test_a_success_after_failures_closes_the_circuit_for_all(town: Town) -> None:
    managers = [await town.start_manager() for _ in range(2)]
    await registered(town)
    tell(managers[0], ended("timed_out"))
    await town.until(lambda: all(manager.catalogue.breakers for manager in managers))

    tell(managers[1], ended("ok"))

    await town.until(lambda: not any(manager.catalogue.breakers for manager in managers), within_s=2.0)
