"""What waits for a device that is away is bounded: the rest goes to others, or waits in the store where all can see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.dispatch.site import Site, eventually, steps_of

from canoa.broker import topology
from canoa.recorder.routed_views import RoutedRequest
from canoa.vocabulary import TaskId

if TYPE_CHECKING:
    from canoa.manager.hosting import Hosted

LIMIT = 3
WHY = f"full: {LIMIT} steps are out at it, of node_inbox={LIMIT}; it gets more once it answers, or they expire"


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANOA_NODE_INBOX", str(LIMIT))
    monkeypatch.setenv("CANOA_STEP_TRAVEL_S", "0.1")


async def by_state(manager: Hosted, task_ids: list[str]) -> list[str]:
    steps = [(await steps_of(manager, each)).get("read") for each in task_ids]
    return sorted("" if step is None else step.state.value for step in steps)


async def are(manager: Hosted, task_ids: list[str], **states: int) -> bool:
    return await by_state(manager, task_ids) == sorted(state for state, count in states.items() for _ in range(count))


async def waiting_in_queue(site: Site, node_id: str) -> int:
    return (await site.broker.depth(topology.node_queue_name(node_id))).messages


async def test_no_more_than_so_many_wait_for_a_device_that_is_away_and_another_node_gets_the_rest(site: Site) -> None:
    manager = await site.start_manager()
    device = await site.start_node("meter-1", manager, read=lambda given: "meter-1")
    await device.go_away()

    task_ids = [await site.request("read", data={}) for _ in range(LIMIT + 2)]
    await eventually(lambda: are(manager, task_ids, sent=LIMIT, waiting=2))

    await eventually(lambda: _holds(site, "meter-1", LIMIT))
    node = await manager.desk.routed.node("meter-1")
    assert (node.state, node.queued) == ("full", LIMIT)
    explained = await manager.desk.routed.explain("plant.read")
    assert (explained.node_id, explained.considered[0].ruled_out) == (None, WHY)

    await site.start_node("meter-2", manager, read=lambda given: "meter-2")
    await eventually(lambda: are(manager, task_ids, sent=LIMIT, ended=2))
    assert await waiting_in_queue(site, "meter-1") == LIMIT


async def test_a_device_that_comes_back_gets_all_that_waited(site: Site) -> None:
    manager = await site.start_manager()
    device = await site.start_node("meter-1", manager, read=lambda given: "meter-1")
    await device.go_away()
    task_ids = [await site.request("read", data={}) for _ in range(LIMIT + 2)]
    await eventually(lambda: are(manager, task_ids, sent=LIMIT, waiting=2))

    await device.join()

    assert [await site.result(each) for each in task_ids] == ["meter-1"] * (LIMIT + 2)
    assert len(device.received) == LIMIT + 2


async def test_a_step_whose_time_is_over_and_one_that_is_called_off_make_room(site: Site) -> None:
    manager = await site.start_manager()
    device = await site.start_node("meter-1", manager, read=lambda given: "meter-1")
    await device.go_away()
    step = {"action": "plant.read", "timeout": 1.0, "retry": 0}
    [brief] = await manager.desk.routed.submit([RoutedRequest(plan={"plan": "brief", "steps": {"read": step}})])
    before = [brief.id, *[await site.request("read", data={}) for _ in range(LIMIT - 1)]]
    late = [await site.request("read", data={}) for _ in range(2)]
    await eventually(lambda: are(manager, [*before, *late], sent=LIMIT, waiting=2))

    await eventually(lambda: are(manager, [*before, *late], ended=1, sent=LIMIT, waiting=1))
    await manager.manager.cancel(TaskId(before[1]))

    await eventually(lambda: are(manager, late, sent=2))


async def test_what_another_manager_sent_counts_also_for_one_that_starts_later(shared_site: Site) -> None:
    site = shared_site
    manager = await site.start_manager()
    device = await site.start_node("meter-1", manager, read=lambda given: "meter-1")
    await device.go_away()
    before = [await site.request("read", data={}) for _ in range(LIMIT)]
    await eventually(lambda: are(manager, before, sent=LIMIT))

    other = await site.start_manager()
    await site.stop_manager()
    late = [await site.request("read", data={})]
    await eventually(lambda: are(other, late, waiting=1))

    assert await waiting_in_queue(site, "meter-1") == LIMIT


async def _holds(site: Site, node_id: str, count: int) -> bool:
    return await waiting_in_queue(site, node_id) == count
