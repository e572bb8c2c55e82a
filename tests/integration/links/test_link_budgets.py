"""A node whose link budget is used up gets no work: others do it, or it waits where everybody can see it."""

from __future__ import annotations

import random
import string
from functools import partial
from typing import TYPE_CHECKING

from tests.integration.dispatch.site import Site, eventually, steps_of
from tests.integration.links.tap import NODE, echoing

from canoa.execution.step_moves import StepState
from canoa.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from canoa.manager.hosting import Hosted

DENSE = "".join(random.Random(7).choices(string.ascii_letters, k=1500))
"""Hardly smaller when it is compressed, and below the rule of the cloud anyhow."""


async def state_of(manager: Hosted, node_id: str) -> str:
    return (await manager.desk.routed.node(node_id)).state


async def test_work_waits_visibly_for_a_node_that_has_no_room_and_goes_to_one_that_has(site: Site) -> None:
    echoing(site.app)
    manager = await site.start_manager()
    limited = WorkerSettings(node_id=NODE, link_budget="2kB/h", drain_s=1)
    async with site.app.worker_with(limited):
        await manager.manager.wait_known(site.app.actions, within_s=10)
        assert await site.result(await site.request("echo", data={"text": DENSE})) == DENSE

        waiting = await site.request("echo", data={"text": DENSE})
        await eventually(lambda: _is_waiting(manager, waiting))

        assert await state_of(manager, NODE) == "over-budget"
        explained = await manager.desk.routed.explain("plant.echo")
        assert explained.node_id is None
        assert explained.considered[0].ruled_out.startswith("its link budget of 2kB/h is used up")
        async with site.app.worker_with(WorkerSettings(node_id="other", drain_s=1)):
            assert await site.result(waiting) == DENSE
            [attempt] = (await steps_of(manager, waiting))["echo"].attempts
            assert attempt.node_id == "other"


async def test_work_goes_on_when_the_window_allows_more(memory_site: Site) -> None:
    echoing(memory_site.app)
    manager = await memory_site.start_manager()
    async with memory_site.app.worker_with(WorkerSettings(node_id=NODE, link_budget="2kB/s", drain_s=1)):
        await manager.manager.wait_known(memory_site.app.actions, within_s=10)

        task_ids = [await memory_site.request("echo", data={"text": DENSE}) for _ in range(3)]
        assert [await memory_site.result(each) for each in task_ids] == [DENSE] * 3

        sent_ms = sorted([(await steps_of(manager, each))["echo"].attempts[0].sent_ms for each in task_ids])
        assert sent_ms[2] - sent_ms[0] >= 990  # each of them, with its answer, takes more than half of the room


async def test_a_layers_budget_is_the_managers_setting_and_shared_by_its_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANOA_LINK_BUDGET_CLOUD", "2kB/h")
    async with Site("memory://", f"sqlite:///{tmp_path}/canoa.db") as site:
        echoing(site.app)
        manager = await site.start_manager()
        async with (
            site.app.worker_with(WorkerSettings(node_id=NODE)),
            site.app.worker_with(WorkerSettings(node_id="b")),
        ):
            await eventually(lambda: len(manager.manager.nodes.catalogue.rows) == 2)
            await site.result(await site.request("echo", data={"text": DENSE}))

            waiting = await site.request("echo", data={"text": DENSE})
            await eventually(lambda: _is_waiting(manager, waiting))

            assert [await state_of(manager, each) for each in (NODE, "b")] == ["over-budget"] * 2


async def test_managers_share_what_they_counted(shared_site: Site) -> None:
    echoing(shared_site.app)
    one, other = await shared_site.start_manager(), await shared_site.start_manager()
    async with shared_site.app.worker_with(WorkerSettings(node_id=NODE, link_budget="2kB/h", drain_s=1)):
        for manager in (one, other):
            await manager.manager.wait_known(shared_site.app.actions, within_s=10)

        await shared_site.result(await shared_site.request("echo", data={"text": DENSE}))

        for manager in (one, other):
            await eventually(partial(_is_over, manager))


async def _is_over(manager: Hosted) -> bool:
    return await state_of(manager, NODE) == "over-budget"


async def _is_waiting(manager: Hosted, task_id: str) -> bool:
    steps = await steps_of(manager, task_id)
    return bool(steps) and steps["echo"].state is StepState.WAITING
