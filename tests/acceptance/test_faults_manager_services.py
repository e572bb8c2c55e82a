"""The services under managers and nodes: RabbitMQ killed, PostgreSQL killed; both come back, and nothing is lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.plant import Plant

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit

    from canoa.testing import PostgresNode


@pytest.mark.rabbitmq
async def test_rabbitmq_is_killed_and_started_again_while_tasks_are_accepted_routed_and_answered(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.manager()
        worker = await plant.node("gw-1")

        async with plant.load():
            await plant.some_results()
            await asyncio.to_thread(rabbit.node.kill)
            await asyncio.to_thread(rabbit.node.start)
            await plant.some_results()

        await plant.everything_is_recorded_once_and_nothing_is_left()
        assert manager.is_alive
        assert worker.is_alive


@pytest.mark.rabbitmq
@pytest.mark.postgres
async def test_postgresql_is_killed_under_load_and_the_managers_recover_by_themselves(
    tmp_path: Path, rabbit: Rabbit, postgres_node: PostgresNode, postgres_url: str
) -> None:
    async with Plant(tmp_path, rabbit, postgres_url) as plant:
        managers = [await plant.manager(), await plant.manager()]
        await plant.node("gw-1")

        async with plant.load():
            await plant.some_results()
            await asyncio.to_thread(postgres_node.kill)
            await plant.submit(20)
            await asyncio.to_thread(postgres_node.start)
            await plant.some_results()

        await plant.everything_is_recorded_once_and_nothing_is_left()
        assert all(manager.is_alive for manager in managers)
