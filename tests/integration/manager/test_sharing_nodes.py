"""Managers on one RabbitMQ and one PostgreSQL know the same nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.manager.test_nodes_life import ended, state
from tests.integration.manager.test_registering import GW, chosen
from tests.integration.manager.town import tell
from tests.unit.manager.words import RESIZE, registration

from canoa.execution.health import Health

if TYPE_CHECKING:
    from tests.integration.manager.town import Town

pytestmark = [pytest.mark.rabbitmq, pytest.mark.postgres]


async def test_what_one_manager_learns_all_know(shared_town: Town) -> None:
    town = shared_town
    managers = [await town.start_manager() for _ in range(3)]

    await town.register()
    await town.until(lambda: [chosen(each) for each in managers] == [GW] * 3)
    for manager in managers:
        tell(manager, ended("timed_out"))
    await town.until(lambda: {state(each) for each in managers} == {Health.DOWN})

    await town.register(actions=[])
    await town.until(lambda: not any(each.catalogue.rows[GW].actions for each in managers))
    assert all(each.router.is_known(RESIZE) for each in managers)


async def test_a_node_that_answered_one_manager_is_silent_for_none(shared_town: Town) -> None:
    town = shared_town
    managers = [await town.start_manager() for _ in range(2)]

    managers[0].watching.answered(GW)

    await town.until(lambda: managers[1].watching.answered_ms(GW))


async def test_a_flood_over_several_managers_costs_at_most_one_write_per_manager_and_node(shared_town: Town) -> None:
    town, nodes = shared_town, 50
    managers = [await town.start_manager() for _ in range(2)]

    await town.publish(*(registration(f"n{number % nodes}", forceRegister=True) for number in range(2000)))
    await town.until(lambda: sum(each.registrations.taken for each in managers) == 2000)
    await town.until(lambda: all(len(each.catalogue.rows) == nodes for each in managers))

    assert max(row.version for row in await town.store.nodes()) <= nodes * len(managers)


async def test_one_manager_leads_and_another_follows_it(shared_town: Town) -> None:
    town = shared_town
    first = await town.start_manager()
    await town.until(lambda: first.heart.is_leading)
    second = await town.start_manager()

    await town.kill(first)

    await town.until(lambda: second.heart.is_leading, within_s=10.0)
