"""Who asks managers that have gone is told so soon, and nothing is left behind that a later one would take up."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from tests.integration.routing_client.plant import WITHIN_S, Plant
from typer.testing import CliRunner

from canoa.cli.program import program
from canoa.client import asking
from canoa.client.asking import Patience, ask
from canoa.errors import ManagersGone
from canoa.manager.hosting import hosting

if TYPE_CHECKING:
    from pathlib import Path

WAITED_FOR = "no manager is connected to the broker; waiting for one"
GONE = "no manager answers: those that ran on this broker have gone; start one: canoa manager"


@pytest.mark.rabbitmq
async def test_a_command_says_what_it_waits_for_and_ends_where_all_managers_have_gone(
    rabbit_url: str, tmp_path: Path
) -> None:
    async with Plant(rabbit_url, tmp_path) as plant:
        await _managed_before(plant)

    command = ["nodes", "--broker", rabbit_url]
    began_s = time.monotonic()
    told = await asyncio.to_thread(CliRunner().invoke, program(command), command)
    assert time.monotonic() - began_s < asking.ANSWER_WITHIN_S

    assert (told.exit_code, told.stdout) == (1, "")
    assert told.stderr.splitlines() == [WAITED_FOR, f"error: {GONE}"]


@pytest.mark.rabbitmq
async def test_what_is_asked_of_managers_that_have_gone_is_not_left_for_a_later_one(
    rabbit_url: str, tmp_path: Path
) -> None:
    async with Plant(rabbit_url, tmp_path) as plant:
        await _managed_before(plant)

        with pytest.raises(ManagersGone, match="start one: canoa manager"):
            await ask(plant.app, "route", b"{}", is_repeatable=False, is_routed=True, patience=Patience(0.0))

        assert (await plant.app.depth("canoa.route")).messages == 0


@pytest.mark.rabbitmq
async def test_a_manager_that_comes_back_answers_who_waits_for_it(
    rabbit_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "TOLD_AWAY_AFTER_S", 0.0)
    async with Plant(rabbit_url, tmp_path) as plant:
        await _managed_before(plant)
        is_waiting = asyncio.Event()
        patience = Patience(WITHIN_S, lambda _: is_waiting.set())

        answer = asyncio.ensure_future(ask(plant.app, "nodes", b"{}", is_routed=True, patience=patience))
        await asyncio.wait_for(is_waiting.wait(), WITHIN_S)
        async with hosting(plant.app, plant.store_url):
            assert await asyncio.wait_for(answer, WITHIN_S) == []


async def _managed_before(plant: Plant) -> None:
    async with hosting(plant.app, plant.store_url):
        pass
