"""Recorders killed with SIGKILL: at the moments between a commit and what must follow it, and at any other."""

from __future__ import annotations

import asyncio
import random
import signal
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.doomed_recorder import MOMENTS
from tests.acceptance.kept_depot import WITHIN_S, KeptDepot, asked, metric

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit
    from tests.acceptance.shell import Process

KILLS = {"sqlite": 10, "postgresql": 6}


@pytest.mark.rabbitmq
@pytest.mark.parametrize("moment", MOMENTS)
async def test_what_a_recorder_left_half_done_when_it_was_killed_is_finished_by_the_next(
    tmp_path: Path, rabbit: Rabbit, moment: str
) -> None:
    async with KeptDepot(tmp_path, rabbit) as depot:
        doomed = await depot.doomed_recorder(moment)
        await depot.submit(100)

        assert await asyncio.to_thread(doomed.wait) == -signal.SIGKILL
        successor = await depot.recorder("--port", "0")

        await depot.every_handle_has_its_result()
        if moment != "accepted-not-published":  # what was published runs again, what was recorded comes again
            await _duplicates_are_counted(successor)
        await depot.everything_is_recorded_once_and_nothing_is_left()


@pytest.mark.rabbitmq
async def test_what_was_accepted_is_run_though_its_recorder_and_the_broker_are_killed_before_it_is_published(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with KeptDepot(tmp_path, rabbit) as depot:
        doomed = await depot.doomed_recorder("accepted-not-published")
        await depot.submit(20)
        await asyncio.to_thread(doomed.wait)

        await asyncio.to_thread(rabbit.node.kill)
        await asyncio.to_thread(rabbit.node.start)
        await depot.recorder()

        await depot.everything_is_recorded_once_and_nothing_is_left()


async def _duplicates_are_counted(recorder: Process) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not metric((await asked(recorder, "/metrics"))[1], "canoa_results_duplicate_total"):
            pass


@pytest.mark.rabbitmq
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
async def test_of_two_recorders_on_one_store_either_may_be_killed_again_and_again(
    tmp_path: Path, rabbit: Rabbit, kind: str, request: pytest.FixtureRequest
) -> None:
    store_url = request.getfixturevalue("postgres_url") if kind == "postgresql" else None
    async with KeptDepot(tmp_path, rabbit, store_url) as depot:
        recorders = [await depot.recorder(), await depot.recorder()]

        async with depot.load():
            for kill in range(KILLS[kind]):
                await depot.ready(recorders[kill % 2])
                await asyncio.sleep(random.uniform(0, 0.3))
                recorders[kill % 2].kill()
                recorders[kill % 2] = depot.start_recorder()

        await depot.everything_is_recorded_once_and_nothing_is_left()


@pytest.mark.rabbitmq
async def test_with_no_recorder_alive_tasks_are_accepted_and_kept_by_the_next(tmp_path: Path, rabbit: Rabbit) -> None:
    async with KeptDepot(tmp_path, rabbit) as depot:
        (await depot.recorder()).kill()
        await depot.submit(50)

        await depot.recorder()

        await depot.everything_is_recorded_once_and_nothing_is_left()
