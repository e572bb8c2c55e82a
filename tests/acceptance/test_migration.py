"""Steps run at the edge while it can, move to the fog when it cannot, and come back: real processes, a real broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.plant import WITHIN_S, Plant, until_true

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit


async def ran_at(plant: Plant, *, times: int = 1, seconds: float = 0.0) -> Counter[str]:
    """Where so many calls ran that came at once."""
    handles = await asyncio.gather(*(plant.begin("where", seconds=seconds) for _ in range(times)))
    return Counter([str(await handle.result(WITHIN_S)) for handle in handles])


@pytest.mark.rabbitmq
async def test_steps_move_to_the_fog_when_the_edge_dies_and_back_when_it_returns(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        await plant.manager()
        edge = await plant.node("edge-1", "--layer", "edge", "--label", "arm=yes")
        await plant.node("fog-1", "--layer", "fog")
        assert await ran_at(plant, times=2) == {"edge-1": 2}
        assert (await plant.nodes())["edge-1"].labels == {"arm": "yes"}

        edge.kill()
        assert set(await ran_at(plant, times=2)) == {"fog-1"}

        await plant.node("edge-1", "--layer", "edge")
        await until_true(lambda: is_at(plant, "edge-1"))


@pytest.mark.rabbitmq
async def test_what_is_too_much_for_the_edge_runs_in_the_fog_and_the_story_says_so(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        await plant.manager()
        for layer in ("edge", "fog", "cloud"):
            await plant.node(f"{layer}-1", "--layer", layer)
        await ran_at(plant)

        went = await ran_at(plant, times=6, seconds=1.0)
        assert went == {"edge-1": 3, "fog-1": 3}

        assert await ran_at(plant) == {"edge-1": 1}
        *_, moved = await asyncio.gather(*(plant.begin("where", seconds=1.0) for _ in range(4)))
        await moved.result(WITHIN_S)
        [step] = await plant.steps(moved)
        assert step.attempts[0].why.endswith("since EDGE has enough to do")


async def is_at(plant: Plant, node_id: str) -> bool:
    return set(await ran_at(plant)) == {node_id}
