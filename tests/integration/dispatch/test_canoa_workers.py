"""Canoa's own workers as nodes of a manager: typed plans, cancellation that interrupts, work that is given back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.integration.dispatch.site import eventually, steps_of
from tests.integration.pool.pool import sample

from canoa import Canoa, TaskCancelled
from canoa.errors import NodeIdTaken
from canoa.vocabulary import TaskId
from canoa.worker.node import Node
from canoa.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from tests.integration.dispatch.site import Site

    from canoa.manager.hosting import Hosted


async def test_a_plan_runs_over_workers_and_its_caller_hears_the_result(site: Site) -> None:
    @site.app.action()
    async def fetch(url: str) -> list[int]:
        return [len(url), 2]

    @site.app.action()
    def total(values: list[int]) -> int:
        return sum(values)

    @site.app.action()
    async def report(total: int, values: list[int]) -> str:
        return f"{total} of {len(values)}"

    plan = site.app.plan("sums")
    values = plan.step(fetch, url=plan.input["url"])
    plan.step(report, plan.step(total, values), values)
    manager = await site.start_manager()
    async with site.app.worker(drain_s=1):
        await manager.manager.wait_known(site.app.actions, within_s=10)

        handle = await plan.submit(url="abc")

        assert await handle.result(10) == "5 of 2"
    await site.app.aclose()


async def test_cancelling_a_task_interrupts_the_action_that_runs_for_it(site: Site) -> None:
    has_begun, was_interrupted = asyncio.Event(), asyncio.Event()

    @site.app.action()
    async def slow() -> None:
        has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            was_interrupted.set()

    manager = await site.start_manager()
    async with site.app.worker(drain_s=1):
        await manager.manager.wait_known(site.app.actions, within_s=10)
        handle = await slow.using(dispatch="routed").submit()
        await asyncio.wait_for(has_begun.wait(), 10)

        await manager.manager.cancel(TaskId(handle.id))

        await asyncio.wait_for(was_interrupted.wait(), 10)
        with pytest.raises(TaskCancelled):
            await handle.result(10)
    await site.app.aclose()


async def test_what_a_leaving_worker_has_not_started_goes_to_another_and_is_no_attempt(site: Site) -> None:
    may_end = asyncio.Event()

    @site.app.action()
    async def slow(number: int) -> int:
        await may_end.wait()
        return number

    manager = await site.start_manager()
    leaving = WorkerSettings(concurrency=1, node_id="leaving", drain_s=5)
    staying = WorkerSettings(concurrency=10, node_id="staying", drain_s=5)
    async with site.app.worker_with(leaving) as first:
        await manager.manager.wait_known(site.app.actions, within_s=10)
        handles = [await slow.using(dispatch="routed").submit(number) for number in range(3)]
        await eventually(lambda: first.in_progress == 1)
        async with site.app.worker_with(staying):
            await eventually(lambda: "staying" in {str(each) for each in manager.manager.nodes.catalogue.rows})
            stopping = asyncio.ensure_future(first.stop())
            await eventually(lambda: _runs_elsewhere(manager, handles[1].id))
            may_end.set()

            assert [await handle.result(10) for handle in handles] == [0, 1, 2]
            await stopping
            attempts = (await steps_of(manager, handles[1].id))["slow"].attempts
            assert [(each.attempt, each.node_id, each.outcome) for each in attempts] == [
                (1, "leaving", "returned"),
                (1, "staying", "ok"),
            ]
    await site.app.aclose()


@pytest.mark.rabbitmq
@pytest.mark.parametrize("site", ["rabbitmq-sqlite"], indirect=True)  # two apps share it
async def test_of_two_workers_that_take_one_id_in_one_moment_the_first_has_it_and_no_task_suffers(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    @site.app.action(timeout=5, retry=0)
    async def double(number: int) -> int:
        return 2 * number

    other = Canoa("other", broker=site.app.settings.broker)
    other.action(name="paint")(lambda: None)
    named = WorkerSettings(node_id="gw-7", drain_s=1)
    manager = await site.start_manager()
    async with site.app.worker_with(named) as first:
        await manager.manager.wait_known(site.app.actions, within_s=10)
        monkeypatch.setattr(Node, "wait_free", _looked_before)
        async with other.worker_with(named) as second:
            handles = [await double.using(dispatch="routed").submit(number) for number in range(20)]

            with pytest.raises(NodeIdTaken):
                await asyncio.wait_for(second.wait_failed(), 10)
            assert [await handle.result(10) for handle in handles] == [2 * number for number in range(20)]
        assert await double.using(dispatch="routed").call(21) == 42
        assert sample(first, "canoa_node_registered") == 1
    await site.app.aclose()


async def _looked_before(_: Node) -> None:
    """And the first one listened only then."""


async def _runs_elsewhere(manager: Hosted, task_id: str) -> bool:
    attempts = (await steps_of(manager, task_id))["slow"].attempts
    return attempts[-1].node_id == "staying"
