"""Nodes and plans in the event stream, over HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from tests.integration.api.world import listening
from tests.integration.routing_client.plant import WITHIN_S
from tests.integration.routing_client.test_desk_of_managers import DOCUMENT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.routing_client.plant import Plant

EVENTS = "/api/v1/events"


async def until(lines: AsyncIterator[str], kind: str) -> list[dict[str, Any]]:
    """What is told, up to the first of that kind."""
    told: list[dict[str, Any]] = []
    async with asyncio.timeout(WITHIN_S):
        async for line in lines:
            if line.startswith("data: "):
                told.append(json.loads(line.removeprefix("data: ")))
                if told[-1]["kind"] == kind:
                    break
    return told


async def test_a_listener_hears_of_a_node_that_joins_and_leaves(plant: Plant) -> None:
    async with listening(plant.app, plant.desk) as api, api.stream("GET", f"{EVENTS}?node=gw-9") as response:
        lines = response.aiter_lines()
        assert await anext(lines) == ": listening"

        async with plant.app.worker(drain_s=2, node_id="gw-9"):
            joined = await until(lines, "node_joined")
        told = joined + await until(lines, "node_left")

    assert (told[0]["kind"], told[0]["outcome"]) == ("node_joined", "new")
    assert [each["kind"] for each in told].count("node_joined") == 1
    assert {(each["node_id"], each["task_id"], each["action"]) for each in told} == {("gw-9", "", "")}


async def test_a_listener_hears_of_a_plan_that_is_new_or_another_one(plant: Plant) -> None:
    async with listening(plant.app, plant.desk) as api, api.stream("GET", EVENTS) as response:
        lines = response.aiter_lines()
        assert await anext(lines) == ": listening"

        shorter = {**DOCUMENT, "steps": {"fetch": DOCUMENT["steps"]["fetch"]}}
        for document in (DOCUMENT, DOCUMENT, shorter):
            (await api.put("/api/v1/plans/power-factor", json=document)).raise_for_status()
        task = await api.post("/api/v1/tasks", json={"action": "plant.fetch", "arguments": {"url": "a"}})
        task.raise_for_status()
        told = await until(lines, "ended")

    plans = [(each["plan"], each["task_id"], each["action"]) for each in told if each["kind"] == "plan_registered"]
    assert plans == [("power-factor", "", "")] * 2
