"""How nodes are chosen makes the difference that the simulated worlds say: worker processes of different speed."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.acceptance.paced_actions import OF_MANAGER, PACE
from tests.acceptance.plant import WITHIN_S, Plant

from canoa.vocabulary import Routing

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit

PACES_S = {"quick-1": 0.05, "quick-2": 0.05, "fair": 0.15, "slow": 0.5}
PLACES = 20
"""At each node, of which there are always some free: that is not what is measured."""

CALLS = 50
EVERY_S = 0.02
TURNS = 3
"""Of each strategy, of which the best counts: what else the machine does only adds to them."""

COMPARED = (Routing.ROUND_ROBIN, Routing.POWER_OF_TWO, Routing.LEARNED)

FAR_ABOVE = 0.4
"""Of what round robin takes over power of two. In simulated worlds a twentieth of the latter is the bound, but a busy
machine takes more than that from one turn and not from the next."""

SAYS = {
    Routing.ROUND_ROBIN: "round robin over 2 nodes",
    Routing.LEAST_LOADED: "least loaded of 2: ",
    Routing.POWER_OF_TWO: "of two: ",
    Routing.LEARNED: "learned: ",
}


class PacedPlant(Plant):
    actions = "tests.acceptance.paced_actions:app"


class Took(NamedTuple):
    mean_ms: float
    p95_ms: float


@pytest.mark.rabbitmq
async def test_learned_is_far_below_round_robin_and_not_far_above_power_of_two_with_real_nodes(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    took: dict[Routing, list[Took]] = {each: [] for each in COMPARED}
    async with PacedPlant(tmp_path, rabbit) as plant:
        await plant.manager()
        await nodes(plant)

        for routing in COMPARED * TURNS:
            took[routing].append(await turn(plant, routing))

    print("\n".join(f"{routing}: {turns}" for routing, turns in took.items()))
    for each in Took._fields:
        in_turns, of_two, ours = (min(getattr(turn, each) for turn in took[routing]) for routing in COMPARED)
        assert ours <= 0.7 * in_turns
        assert ours <= of_two + FAR_ABOVE * (in_turns - of_two)


@pytest.mark.rabbitmq
async def test_an_action_is_routed_as_its_code_says_and_others_as_the_manager_was_told(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with PacedPlant(tmp_path, rabbit) as plant:
        await plant.manager(CANOA_ROUTING="learned")
        await asyncio.gather(*(plant.node(name, **{PACE: "0"}) for name in ("a", "b")))

        whys = {name: await why(plant, name) for name in (*Routing, OF_MANAGER)}

    for name, said in (SAYS | {OF_MANAGER: SAYS[Routing.LEARNED]}).items():
        assert whys[name].startswith(said), name


async def nodes(plant: Plant) -> None:
    args = ("--concurrency", str(PLACES))
    await asyncio.gather(*(plant.node(name, *args, **{PACE: str(pace_s)}) for name, pace_s in PACES_S.items()))


async def turn(plant: Plant, routing: Routing) -> Took:
    """Calls come evenly, whether others have ended or not."""

    async def one() -> float:
        began_s = time.monotonic()
        handle = await plant.begin(routing.value)
        await handle.result(WITHIN_S)
        return 1000 * (time.monotonic() - began_s)

    began_s = time.monotonic()
    calls = []
    async with asyncio.TaskGroup() as group:
        for number in range(CALLS):
            await asyncio.sleep(began_s + number * EVERY_S - time.monotonic())
            calls.append(group.create_task(one(), name=f"call.{number}"))
    took_ms = sorted(call.result() for call in calls)
    return Took(sum(took_ms) / CALLS, took_ms[int(0.95 * CALLS)])


async def why(plant: Plant, action: str) -> str:
    handle = await plant.begin(action)
    await handle.result(WITHIN_S)
    [step] = await plant.steps(handle)
    return str(step.attempts[0].why)
