"""A worker with a link budget uses it up: commands say so, work moves to another layer, and comes back."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.acceptance.plant import WITHIN_S, Plant, until_true
from tests.acceptance.test_proven_health import shown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit
    from tests.acceptance.shell import Process

    from canoa.client.handle import Handle

BUDGET = "30kB/s"
ANSWERS = 60
SIZE_BYTES = 45_000
"""Each of them is more than a second's budget. What they are asked with is a tenth of it."""

EVERY_S = 0.3


class Scales(Plant):
    """Answers that weigh much, each of which comes when a file is made."""

    def __init__(self, folder: Path, rabbit: Rabbit) -> None:
        super().__init__(folder, rabbit)
        self.folder = folder
        (folder / "0").touch()

    async def weigh(self, count: int) -> list[Handle[Any]]:
        """They run, and wait for their files."""
        folder = str(self.folder)
        numbers = range(1, count + 1)
        return [await self.begin("weigh", folder=folder, number=each, size_bytes=SIZE_BYTES) for each in numbers]

    @asynccontextmanager
    async def answering(self, handles: list[Handle[Any]]) -> AsyncIterator[None]:
        """One after the other, as long as the block lasts; the rest at its end."""

        async def answer() -> None:
            for number in range(1, len(handles) + 1):
                (self.folder / str(number)).touch()
                await asyncio.sleep(EVERY_S)

        answering = asyncio.create_task(answer())
        try:
            yield
        finally:
            answering.cancel()
        for number in range(1, len(handles) + 1):
            (self.folder / str(number)).touch()
        assert {(await handle.result(WITHIN_S))[:6] for handle in handles} == {"edge-1"}

    async def canoa(self, *args: str) -> str:
        run = await asyncio.to_thread(self.shell.canoa, *args)
        assert run.returncode == 0, run.stderr
        return run.stdout + run.stderr

    async def weighed_at(self) -> str:
        """Where a light one goes."""
        said = await self.canoa(
            "submit", "plant.weigh", json.dumps({"folder": str(self.folder)}), "--routed", "--follow"
        )
        return str(json.loads(said.splitlines()[0]))


@pytest.mark.rabbitmq
async def test_work_moves_while_a_link_budget_is_used_up_and_comes_back(tmp_path: Path, rabbit: Rabbit) -> None:
    async with Scales(tmp_path, rabbit) as scales:
        manager = await scales.manager()
        await asyncio.gather(
            scales.node("edge-1", "--layer", "edge", "--link-budget", BUDGET),
            scales.node("cloud-1", "--layer", "cloud"),
        )

        async with scales.answering(await scales.weigh(ANSWERS)):
            await until_state(manager, "edge-1", "over-budget")
            nodes, explained = await asyncio.gather(scales.canoa("nodes"), scales.canoa("explain", "plant.weigh"))
            moved = await scales.weighed_at()

        assert healths_in(nodes) == {"edge-1": "over-budget", "cloud-1": "OK"}
        assert "plant.weigh would go to cloud-1, by round robin over 1 node." in explained
        assert f"its link budget of {BUDGET} is used up" in explained
        assert moved == "cloud-1"

        await until_state(manager, "edge-1", "here")
        assert await scales.weighed_at() == "edge-1"


def healths_in(table: str) -> dict[str, str]:
    """What `canoa nodes` says of each node's health."""
    head, *lines = table.splitlines()
    start = head.lower().index("health")
    return {line.split()[0]: line[start:].split()[0] for line in lines if line.startswith(("edge", "cloud"))}


async def until_state(manager: Process, name: str, state: str) -> None:
    async def is_so() -> bool:
        return (await shown(manager, name)).get("state") == state

    await until_true(is_so)
