"""Steps run at the edge while it can, move to the fog when it cannot, and come back: real processes, a real broker."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import signal
import time
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import pytest
from tests.acceptance.plant import WITHIN_S, Plant, until_true

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit

    from canoa.client.handle import Handle

LAYERS = ("edge", "fog", "cloud")
NEAR = """
plan: near-{site}
steps:
  take: {{action: plant.take, placement: {{labels: {{camera: {site}}}}}}}
  develop: {{action: plant.develop, with: {{film: $take}}, placement: {{near: require}}}}
"""


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
async def test_steps_move_to_the_cloud_when_edge_and_fog_die_and_back_when_they_return(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        await plant.hasty_manager()
        edge = await plant.node("edge-1", "--layer", "edge")
        fog = await plant.node("fog-1", "--layer", "fog")
        await plant.node("cloud-1", "--layer", "cloud")

        async with Stream(plant) as stream:
            await stream.runs_at("edge-1")
            edge.kill()
            fog.kill()
            await stream.runs_at("cloud-1")
            meanwhile = await plant.begin("where")
            await meanwhile.result(WITHIN_S)

            await plant.node("fog-1", "--layer", "fog")
            await stream.runs_at("fog-1")
            await plant.node("edge-1", "--layer", "edge")
            await stream.runs_at("edge-1")

        assert changes(stream.went) <= 5, stream.went  # three are needed; on its way down it may pass by the fog
        told = await asyncio.to_thread(shown, plant, meanwhile.id)
        assert re.search(r"1. cloud-1 +ok ", told), told
        for passed in ("edge-1", "fog-1"):
            assert f"not {passed}: cut off: nobody listens on its queue, and it may come back" in told


@pytest.mark.rabbitmq
async def test_a_step_of_a_plan_that_is_to_be_near_runs_at_the_site_where_its_data_is(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        await plant.manager()
        places = [(site, at) for site in ("natal", "recife") for at in range(2)]
        await asyncio.gather(
            *(plant.node(f"{site}-{at}", "--site", site, "--label", f"camera={site}") for site, at in places)
        )

        for site, other in (("natal", "recife"), ("recife", "natal")):
            runs = [await developed(plant, site) for _ in range(2)]
            told = await asyncio.to_thread(shown, plant, runs[0][0])

            assert {node_id.partition("-")[0] for _, went in runs for node_id in went} == {site}
            assert f"not {other}-0: it is not in {site}, where the input comes from" in told


@pytest.mark.rabbitmq
async def test_what_is_too_much_for_the_edge_runs_in_the_fog_and_the_story_says_so(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        await plant.manager()
        await nodes_of_all_layers(plant)
        await ran_at(plant)

        went = await ran_at(plant, times=6, seconds=1.0)
        assert went == {"edge-1": 3, "fog-1": 3}

        assert await ran_at(plant) == {"edge-1": 1}
        *_, moved = await asyncio.gather(*(plant.begin("where", seconds=1.0) for _ in range(4)))
        assert (await why(plant, moved)).endswith("since EDGE has enough to do")


@pytest.mark.rabbitmq
async def test_what_is_too_much_fills_the_edge_then_the_fog_then_the_cloud(tmp_path: Path, rabbit: Rabbit) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        await plant.manager()
        await nodes_of_all_layers(plant)
        await ran_at(plant)

        held = [await plant.begin("where", folder=str(tmp_path)) for _ in range(10)]
        whys = [await why(plant, handle) for handle in held]
        (tmp_path / "release").touch()
        went = [str(await handle.result(WITHIN_S)) for handle in held]

        assert went[:9] == ["edge-1"] * 3 + ["fog-1"] * 3 + ["cloud-1"] * 3
        assert [each.partition("since ")[2] for each in whys[:9:3]] == [
            "",
            "EDGE has enough to do",
            "EDGE has enough to do, FOG has enough to do",
        ]
        assert "no layer has room" in whys[9]
        assert await ran_at(plant) == {"edge-1": 1}


@pytest.mark.rabbitmq
async def test_steps_leave_an_edge_that_is_slow_and_come_back_once_it_is_quick(tmp_path: Path, rabbit: Rabbit) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        await plant.hasty_manager()
        await nodes_of_all_layers(plant)
        assert await quick_at(plant, times=12) == {"edge-1": 12}

        slow = tmp_path / "slow-edge-1"
        slow.touch()
        await until_true(lambda: is_quick_at(plant, "fog-1"))
        assert (await why(plant, await begun_quick(plant))).endswith("since EDGE is slow")
        slow.unlink()
        await until_true(lambda: is_quick_at(plant, "edge-1"))

        assert await quick_at(plant, times=12) == {"edge-1": 12}


@pytest.mark.rabbitmq
async def test_under_a_load_around_its_bound_an_edge_is_left_now_and_then_but_not_by_every_other_step(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        await plant.manager()
        await nodes_of_all_layers(plant)
        await ran_at(plant)

        dice = random.Random(3)
        handles = []
        began_s = time.monotonic()
        for number in range(150):  # 20 are out at a time, where the edge has room for 12
            await asyncio.sleep(began_s + number * 0.05 - time.monotonic())
            handles.append(await plant.begin("steady", seconds=dice.uniform(0.6, 1.4)))
        went = [str(await handle.result(WITHIN_S)) for handle in handles]

        assert set(went) == {"edge-1", "fog-1"}
        assert changes(went) <= 20  # of 149 that are possible; about 10 come of the bound and its three quarters


@pytest.mark.rabbitmq
async def test_an_edge_that_stays_slow_is_tried_again_ever_less_often(tmp_path: Path, rabbit: Rabbit) -> None:
    (tmp_path / "slow-edge-1").touch()
    async with Plant(tmp_path, rabbit) as plant:
        await plant.hasty_manager()
        await nodes_of_all_layers(plant)

        handles = []
        for _ in range(100):
            handles.append(await begun_quick(plant))
            await asyncio.sleep(0.1)
        went = [str(await handle.result(WITHIN_S)) for handle in handles]

        assert went[0] == "edge-1"
        assert went[-1] == "fog-1"
        assert changes(went) <= 3  # away for 3 s, back, and away for 6 s


@pytest.mark.rabbitmq
async def test_a_step_that_needs_a_label_runs_only_where_it_is_and_waits_where_nobody_has_it(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        await plant.manager()
        await plant.node("edge-1", "--layer", "edge", "--label", "arm=no")
        fog = await plant.node("fog-1", "--layer", "fog", "--label", "arm=yes,line=3")
        await plant.node("cloud-1", "--layer", "cloud")
        assert await ran_at(plant, "lift", times=20) == {"fog-1": 20}

        fog.send(signal.SIGTERM)
        fog.wait()
        waiting = await plant.begin("lift")
        await ran_at(plant)  # the others go on meanwhile
        assert not any(step.attempts for step in await plant.steps(waiting))
        await plant.node("cloud-2", "--layer", "cloud", "--label", "arm=yes")

        assert await waiting.result(WITHIN_S) == "cloud-2"


# --- What they ask ------------------------------------------------------------------------------------


async def nodes_of_all_layers(plant: Plant) -> None:
    await asyncio.gather(*(plant.node(f"{layer}-1", "--layer", layer) for layer in LAYERS))


async def ran_at(plant: Plant, action: str = "where", *, times: int = 1, **arguments: Any) -> Counter[str]:
    """Where so many calls ran that came at once."""
    handles = await asyncio.gather(*(plant.begin(action, **arguments) for _ in range(times)))
    return Counter([str(await handle.result(WITHIN_S)) for handle in handles])


async def is_at(plant: Plant, node_id: str) -> bool:
    return set(await ran_at(plant)) == {node_id}


async def quick_at(plant: Plant, *, times: int = 1) -> Counter[str]:
    return await ran_at(plant, "quick", times=times, folder=str(plant.shell.folder))


async def begun_quick(plant: Plant) -> Handle[Any]:
    return await plant.begin("quick", folder=str(plant.shell.folder))


async def is_quick_at(plant: Plant, node_id: str) -> bool:
    return set(await quick_at(plant, times=4)) == {node_id}


async def developed(plant: Plant, site: str) -> tuple[str, list[str]]:
    """A plan's task, and where its two steps ran: the first where there is that camera, the second near to it."""
    (plant.shell.folder / "plan.yaml").write_text(NEAR.format(site=site))
    run = await asyncio.to_thread(plant.shell.canoa, "submit", "plan.yaml", "--follow", "--json")
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    return told["id"], told["result"]


def shown(plant: Plant, task_id: str) -> str:
    """As `canoa task show` tells it."""
    run = plant.shell.canoa("task", "show", task_id)
    assert run.returncode == 0, run.stderr
    return run.stdout


async def why(plant: Plant, handle: Handle[Any]) -> str:
    """It was sent where it went."""

    async def is_sent() -> bool:
        return any(step.attempts for step in await plant.steps(handle))

    await until_true(is_sent)
    [step] = await plant.steps(handle)
    return str(step.attempts[0].why)


def changes(went: list[str]) -> int:
    """How often a step went to another node than the one before it."""
    return sum(one != other for one, other in pairwise(went))


class Stream:
    """A step every third of a second, for as long as the block runs: never enough to fill a layer."""

    def __init__(self, plant: Plant) -> None:
        self._plant = plant
        self._ran: dict[int, str] = {}
        self._is_over = asyncio.Event()
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._tasks.create_task(self._flow(), name="stream.flow")
        return self

    async def __aexit__(self, *raised: Any) -> None:
        """Once all have ended."""
        self._is_over.set()
        await self._tasks.__aexit__(*raised)

    @property
    def went(self) -> list[str]:
        """Where each step ran that has ended, in the order in which they were submitted."""
        return [node_id for _, node_id in sorted(self._ran.items())]

    async def runs_at(self, node_id: str) -> None:
        """Three in a row."""

        async def is_there() -> bool:
            return self.went[-3:] == [node_id] * 3

        await until_true(is_there)

    async def _flow(self) -> None:
        for number in itertools.count():
            handle = await self._plant.begin("steady", seconds=0.05)
            self._tasks.create_task(self._end(number, handle), name=f"stream.{number}")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_over.wait(), 0.3)
            if self._is_over.is_set():
                return

    async def _end(self, number: int, handle: Handle[Any]) -> None:
        self._ran[number] = str(await handle.result(WITHIN_S))
