"""The wall clock of a manager or of a node jumps an hour: nothing is lost, and nothing waits for the hour to pass."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.plant import Plant

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit

HOUR_S = 3600
DEADLINE_S = 20.0


@pytest.mark.rabbitmq
@pytest.mark.parametrize("jump_s", [-HOUR_S, HOUR_S], ids=["back", "forth"])
async def test_tasks_go_on_when_the_clock_of_their_manager_jumps(tmp_path: Path, rabbit: Rabbit, jump_s: int) -> None:
    clock = tmp_path / "clock"
    clock.write_text("0")
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.wrong_clock_manager(clock)
        await plant.node("gw-1")

        async with plant.load():
            await plant.some_results()
            await asyncio.to_thread(_jump, clock, jump_s)
            for _ in range(5):
                await plant.some_results()

        await plant.everything_is_recorded_once_and_nothing_is_left()
        assert manager.is_alive


@pytest.mark.rabbitmq
async def test_what_a_killed_manager_left_is_finished_by_one_whose_clock_is_an_hour_behind(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    clock = tmp_path / "clock"
    clock.write_text("0")
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.wrong_clock_manager(clock)
        await plant.node("gw-1")
        await plant.submit(100, seconds=0.5)
        manager.kill()

        _jump(clock, -HOUR_S)
        await plant.wrong_clock_manager(clock)

        await plant.everything_is_recorded_once_and_nothing_is_left()


@pytest.mark.rabbitmq
@pytest.mark.parametrize("jump_s", [-HOUR_S, HOUR_S], ids=["back", "forth"])
async def test_a_node_whose_clock_jumps_still_reads_deadlines_and_tells_times_as_its_manager_does(
    tmp_path: Path, rabbit: Rabbit, jump_s: int
) -> None:
    clock = tmp_path / "clock"
    clock.write_text("0")
    async with Plant(tmp_path, rabbit) as plant:
        await plant.manager()
        node = await plant.wrong_clock_node("gw-1", clock)
        await plant.some_results()

        _jump(clock, jump_s)
        await asyncio.to_thread(node.wait_logged, "clock_differs")
        handle = await plant.begin("double", number=1, seconds=0.2, queue_timeout_s=DEADLINE_S)

        assert await handle.result(DEADLINE_S) == 2
        [step] = await plant.steps(handle)
        [attempt] = step.attempts
        assert attempt.started_ms is not None
        assert attempt.ended_ms is not None
        assert attempt.started_ms - attempt.sent_ms == pytest.approx(0, abs=DEADLINE_S * 1000)
        assert attempt.ended_ms - attempt.started_ms >= 150  # it slept 200 ms, which end up to a tick sooner


def _jump(clock: Path, to_s: int) -> None:
    new = clock.with_suffix(".new")
    new.write_text(str(to_s))
    new.replace(clock)
