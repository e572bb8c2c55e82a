"""Managers own nothing: what one leaves behind, the next one finds, and a broker that forgets is told again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.dispatch.site import eventually

from canoa.broker.port import Message
from canoa.clock import now_ms
from canoa.execution.plan import Plan, Step
from canoa.store.port import NewTask
from canoa.store.routed_port import HOLD_OWED_MS, Begin
from canoa.vocabulary import ActionName, TaskId

if TYPE_CHECKING:
    from tests.integration.dispatch.site import Site

    from canoa.manager.hosting import Hosted

DOUBLE = ActionName("plant.double")


async def test_what_a_killed_manager_did_not_send_another_one_sends(site: Site) -> None:
    manager = await site.start_manager()
    await site.start_node("gw-1", manager, double=lambda value: 2 * value)

    await _written_but_not_sent(manager, "order-7", ended_hold=True)

    await eventually(lambda: _has_ended(manager, "order-7"))


async def test_what_was_left_in_the_queues_is_taken_by_the_next_manager(site: Site) -> None:
    manager = await site.start_manager()
    may_end = asyncio.Event()

    async def slow(value: int) -> int:
        await may_end.wait()
        return value

    node = await site.start_node("gw-1", manager, slow=slow)
    task_id = await site.request("slow", data=7)
    await eventually(lambda: bool(node.received))

    if not site.app.settings.is_memory:  # there the queues are gone with the last broker object
        await site.stop_manager()
        may_end.set()
        manager = await site.start_manager()
    may_end.set()

    assert await site.result(task_id) == 7
    assert len(node.received) == 1


async def test_a_memory_broker_that_starts_anew_gets_what_was_out_again(tmp_path: Any) -> None:
    from tests.integration.dispatch.site import Site

    store_url = f"sqlite:///{tmp_path}/canoa.db"
    async with Site("memory://", store_url) as first:
        manager = await first.start_manager()
        node = await first.start_node("gw-1", manager, double=_never)
        task_id = await first.request("double", data=21)
        await eventually(lambda: bool(node.received))
    async with Site("memory://", store_url) as second:
        manager = await second.start_manager()
        await second.start_node("gw-2", manager, double=lambda value: 2 * value)

        await eventually(lambda: _has_ended(manager, task_id))


@pytest.mark.rabbitmq
@pytest.mark.postgres
async def test_two_managers_share_all_tasks_and_each_ends_once(shared_site: Site) -> None:
    site = shared_site
    first, second = await site.start_manager(), await site.start_manager()
    node = await site.start_node("gw-1", first, inc=lambda value: value + 1)
    await eventually(lambda: "plant.inc" in second.manager.nodes.catalogue.known_actions)

    task_ids = [await site.request("inc", "inc", "inc", data=number, task_id="three") for number in range(200)]
    results = [await site.result(task_id) for task_id in task_ids]

    assert results == [number + 3 for number in range(200)]
    assert len(node.received) == len(set(node.received)) == 600
    ended = [each.manager.figures.stats.tasks for each in (first, second)]
    await eventually(lambda: sum(each["ok"] for each in ended) == 200)
    assert min(each["ok"] for each in ended) > 0


@pytest.mark.rabbitmq
@pytest.mark.postgres
async def test_tasks_end_when_one_of_two_managers_goes_in_between(shared_site: Site) -> None:
    site = shared_site
    first, second = await site.start_manager(), await site.start_manager()
    await site.start_node("gw-1", first, inc=lambda value: value + 1)
    await eventually(lambda: "plant.inc" in second.manager.nodes.catalogue.known_actions)

    task_ids = [await site.request("inc", "inc", data=number, task_id="two") for number in range(100)]
    await site.stop_manager()

    assert [await site.result(task_id) for task_id in task_ids] == [number + 2 for number in range(100)]


@pytest.mark.rabbitmq
@pytest.mark.postgres
@pytest.mark.parametrize("is_gone", [False, True], ids=["both stay", "one goes"])
async def test_a_manager_hears_what_came_of_its_own_bundles_and_another_one_once_it_is_gone(
    shared_site: Site, is_gone: bool
) -> None:
    site = shared_site
    begun, may_end = 0, asyncio.Event()

    @site.app.action(timeout=60)
    async def slow(number: int) -> int:
        nonlocal begun
        begun += 1
        await may_end.wait()
        return number

    first = await site.start_manager()
    async with site.app.worker(drain_s=1, concurrency=50):
        await first.manager.wait_known(site.app.actions, within_s=10)
        routed = slow.using(dispatch="routed")
        handles = await asyncio.gather(*(routed.submit(number) for number in range(50)))
        await eventually(lambda: begun == 50)
        second = await site.start_manager()
        if is_gone:
            await site.stop_manager()
        may_end.set()

        assert [await handle.result(20) for handle in handles] == [*range(50)]
        heard, other = (each.manager.figures.stats.step_results["taken"] for each in (first, second))
        assert heard + other == 50
        assert (heard == 0) if is_gone else (heard >= 40)  # what left alone is answered to any of them
    await site.app.aclose()


async def _written_but_not_sent(manager: Hosted, task_id: str, *, ended_hold: bool) -> None:
    """As if a manager had been killed between the commit and the publish."""
    at_ms = now_ms() - (HOLD_OWED_MS + 1 if ended_hold else 0)
    task = NewTask(id=TaskId(task_id), action=DOUBLE, message=Message(body=b"21"), submitted_ms=at_ms)
    plan = Plan(name=DOUBLE, steps=(Step(name="double", action=DOUBLE),))
    begin = Begin(task=task, plan=plan, now_ms=at_ms)
    moved = await manager.manager.store.advance([begin], manager.manager.nodes.router)
    assert moved[0].owed


async def _has_ended(manager: Hosted, task_id: str) -> bool:
    result = await manager.manager.store.result(TaskId(task_id))
    return result is not None and result.body == b"42"


async def _never(_: Any) -> None:
    await asyncio.Event().wait()
