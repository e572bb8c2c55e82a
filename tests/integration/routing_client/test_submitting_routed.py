"""Routed tasks from Python: submitted, awaited, found again and cancelled like any other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.integration.routing_client.plant import WITHIN_S, Plant, Samples

from canoa import ActionFailed, Canoa, TaskCancelled
from canoa.errors import CanoaError, NobodyManages, TaskRefused, UnknownAction, UnknownPlan

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_routed_action_gives_what_it_returns(plant: Plant) -> None:
    routed = plant.fetch.using(dispatch="routed")

    assert await routed.call("abc") == Samples([3.0, 2.0])
    handle = await routed.submit(url="abcd")
    assert await handle.result(WITHIN_S) == Samples([4.0, 2.0])


async def test_many_routed_actions_go_out_together(plant: Plant) -> None:
    calls = [Samples([float(number)]) for number in range(300)]

    found = [total async for total in plant.total.using(dispatch="routed").map(calls)]

    assert sorted(found) == [float(number) for number in range(300)]


async def test_a_plan_runs_and_gives_the_result_of_its_last_step(plant: Plant) -> None:
    assert await plant.plan.call(url="abc") == "5 of 2"
    handle = await plant.plan.submit(url="abc")
    assert await handle.result(WITHIN_S) == "5 of 2"


async def test_a_routed_task_is_found_again_by_its_id(plant: Plant) -> None:
    handle = await plant.fetch.using(dispatch="routed", result="none").submit("abc")

    found = plant.app.handle(handle.id, plant.fetch)

    assert await found.result(WITHIN_S) == Samples([3.0, 2.0])
    assert (await found.status()).outcome == "ok"


async def test_what_a_step_raised_is_raised_at_the_caller(plant: Plant) -> None:
    plant.broken.set()

    with pytest.raises(ActionFailed, match=r"^ValueError: no paper") as told:
        await plant.report.using(dispatch="routed", retry=0).call(1.0, [])
    with pytest.raises(ActionFailed, match=r"^step report: ValueError: no paper"):
        await plant.plan.call(url="abc")

    assert told.value.error_type == "ValueError"
    assert 'raise ValueError("no paper")' in told.value.remote_traceback


async def test_a_cancelled_handle_cancels_the_task_at_the_manager(plant: Plant) -> None:
    handle = await plant.hold.using(dispatch="routed").submit()
    await asyncio.wait_for(plant.held.wait(), WITHIN_S)

    await handle.cancel()

    with pytest.raises(TaskCancelled):
        await handle.result()
    assert (await plant.app.handle(handle.id).status()).outcome == "cancelled"


async def test_the_same_idempotency_key_runs_once(plant: Plant) -> None:
    keyed = plant.plan.using(idempotency_key="monday")

    first, second = await keyed.submit(url="abc"), await keyed.submit(url="abc")

    assert first.id == second.id
    assert await first.result(WITHIN_S) == await second.result(WITHIN_S) == "5 of 2"
    assert plant.runs == ["fetch", "total", "report"]


async def test_limits_of_one_submit_reach_the_manager(plant: Plant) -> None:
    plant.broken.set()

    with pytest.raises(ActionFailed):
        await plant.report.using(dispatch="routed", retry=1).call(1.0, [])

    assert plant.runs == ["report", "report"]


async def test_without_asyncio_plans_and_routed_actions_are_called_alike(plant: Plant) -> None:
    def blocking() -> tuple[str, Samples]:
        sync = plant.app.sync
        return sync.call(plant.plan, url="abc"), sync.submit(plant.fetch.using(dispatch="routed"), "ab").result(
            WITHIN_S
        )

    assert await asyncio.to_thread(blocking) == ("5 of 2", Samples([2.0, 2.0]))


async def test_on_the_memory_broker_a_routed_task_is_stored_before_the_caller_hears_yes(memory_plant: Plant) -> None:
    handle = await memory_plant.hold.using(dispatch="routed").submit()

    assert await memory_plant.hosted.recorder.store.task(handle.id) is not None


async def test_a_plan_that_nobody_registered_is_refused(memory_plant: Plant) -> None:
    session = await memory_plant.app.session()

    with pytest.raises(UnknownPlan, match="'nothing'"):
        await session.submit_plan("nothing", {})


async def test_an_action_that_no_node_offers_is_refused_with_the_nearest_names(plant: Plant) -> None:
    """Before it is accepted where a manager is in the process, and as its result where it is beyond the broker."""

    @plant.app.action()  # too late: the worker has registered
    async def totals(data: Samples) -> float:
        return 0.0

    with pytest.raises((UnknownAction, TaskRefused)) as refused:
        await totals.using(dispatch="routed").call(Samples([1.0]))

    assert "no node has ever offered action 'plant.totals'; did you mean plant.total? " in str(refused.value)
    assert "declare" not in str(refused.value)


@pytest.mark.rabbitmq
async def test_where_no_manager_ever_ran_the_error_names_the_command(rabbit_url: str) -> None:
    app = Canoa("plant", broker=rabbit_url)

    @app.action()
    async def double(number: int) -> int:
        return 2 * number

    async with app:
        with pytest.raises(NobodyManages, match="canoa manager"):
            await double.using(dispatch="routed").submit(2)
        with pytest.raises(NobodyManages, match="canoa manager"):
            await double.using(dispatch="routed").call(2)


@pytest.mark.rabbitmq
async def test_where_no_manager_ever_ran_each_of_many_hears_so(rabbit_url: str) -> None:
    app = Canoa("plant", broker=rabbit_url)

    @app.action()
    async def double(number: int) -> int:
        return 2 * number

    routed = double.using(dispatch="routed")
    async with app:
        told = await asyncio.gather(*(routed.call(number) for number in range(5)), return_exceptions=True)
        with pytest.raises(NobodyManages, match="canoa manager"):
            await routed.submit_many([double.args(number) for number in range(5)])

    assert [type(each) for each in told] == [NobodyManages] * 5


async def test_on_the_memory_broker_the_error_names_canoa_up(tmp_path: Path) -> None:
    async with Canoa("plant", broker="memory://") as app:
        session = await app.session()

        with pytest.raises(NobodyManages, match=r"under `canoa up`, or inside `app.manager\(\)`"):
            await session.submit_plan("anything", {})


async def test_calls_that_are_started_together_are_each_answered(plant: Plant) -> None:
    routed = plant.total.using(dispatch="routed")
    refused = plant.fetch.using(dispatch="routed")

    answers = await asyncio.gather(
        *(routed.call(Samples([float(number)])) for number in range(200)),
        refused.call(7),  # type: ignore[arg-type]
        return_exceptions=True,
    )

    assert answers[:200] == [float(number) for number in range(200)]
    assert isinstance(answers[200], CanoaError)
