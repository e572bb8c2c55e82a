"""A manager's own page, `/actuator/health`: it says DOWN while the manager cannot work, and nodes that were told its
address come back with it, whatever else they hear.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.kept_depot import asked
from tests.acceptance.plant import Plant, counted, until_true
from tests.integration.queue_thief import without_heartbeats

from canoa.testing import free_port
from canoa.testing.ports import LOOPBACK

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit
    from tests.acceptance.shell import Process

    from canoa.testing import PostgresNode

NODE = "gw-1"
SEEN_WITHIN_S = 10.0
"""Two looks, three seconds apart, and a second before a registration that was asked for; silence takes fifteen."""


async def said(manager: Process) -> tuple[int, str]:
    status, body = await asked(manager, "/actuator/health")
    return status, json.loads(body)["status"]


async def says(manager: Process, status: int, word: str) -> None:
    async def is_so() -> bool:
        return await said(manager) == (status, word)

    await until_true(is_so)


async def logged(node: Process, event: str, times: int) -> None:
    async def is_so() -> bool:
        return [each["event"] for each in node.events()].count(event) >= times

    await until_true(is_so, SEEN_WITHIN_S)


async def test_a_node_registers_again_when_the_page_of_its_killed_manager_is_up_again(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    port = str(free_port())
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.manager("--port", port)
        node = await plant.node(NODE, "--manager", f"http://{LOOPBACK}:{port}")
        await without_heartbeats(
            rabbit.url, NODE, (await plant.nodes())[NODE].instance
        )  # or heartbeats would tell it as well
        manager.kill()
        await logged(node, "managers_silent", 1)

        successor = await plant.manager("--port", port)

        await logged(node, "node_registered", 2)
        assert await counted(successor, "canoa_registrations_total") == 1
        await plant.some_results()


@pytest.mark.postgres
async def test_a_manager_without_work_says_down_while_its_store_is_away_and_its_node_comes_back_with_it(
    tmp_path: Path, rabbit: Rabbit, postgres_node: PostgresNode, postgres_url: str
) -> None:
    port = str(free_port())
    async with Plant(tmp_path, rabbit, postgres_url) as plant:
        manager = await plant.manager("--port", port)
        node = await plant.node(NODE, "--manager", f"http://{LOOPBACK}:{port}")
        await without_heartbeats(rabbit.url, NODE, (await plant.nodes())[NODE].instance)
        await says(manager, 200, "UP")

        await asyncio.to_thread(postgres_node.kill)
        await says(manager, 503, "DOWN")
        await logged(node, "managers_silent", 1)
        await asyncio.to_thread(postgres_node.start)

        await says(manager, 200, "UP")
        await logged(node, "node_registered", 2)
        await plant.some_results()


async def test_a_manager_says_down_while_its_broker_is_away(tmp_path: Path, rabbit: Rabbit) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.manager()
        await says(manager, 200, "UP")

        await asyncio.to_thread(rabbit.node.kill)
        await says(manager, 503, "DOWN")
        await asyncio.to_thread(rabbit.node.start)

        await says(manager, 200, "UP")
