"""Nodes that are cut off or killed between the work and its answer: what was done is told later, and not done again.

Each of them by its broker, as in fog and cloud, and over MQTT alone, as at the edge.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.acceptance.plant import APP, HASTY, WITHIN_S, Plant, counted, has_counted, until_true
from tests.acceptance.shell import Process, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit

    from canoa.client.handle import Handle
    from canoa.testing import MosquittoNode
    from canoa.testing.proxy import TcpProxy
    from canoa.testing.pytest_plugin import ProxyFactory

pytestmark = [pytest.mark.rabbitmq, pytest.mark.timeout(180)]

TASKS = 40
ANSWERS = 'canoa_step_results_total{verdict="(?:taken|late|double)"}'
CHANGED_NOTHING = 'canoa_step_results_total{verdict="(?:late|double)"}'
BOX = ".canoa/outbox-gw-1.db"


class Link(NamedTuple):
    """A node's only one to its managers, which it finds with `args` and `env`, and they it with `managers`.
    `proxy` cuts it."""

    proxy: TcpProxy
    args: list[str]
    env: dict[str, str]
    managers: dict[str, str]
    missed: str  # what a manager says that misses the node
    timeout_s: float | None  # of one attempt, after which its work is another's
    answers: int  # to what was sent before the node was missed


@pytest.fixture(params=["AMQP", "MQTT"])
async def link(request: pytest.FixtureRequest, rabbit: Rabbit, tcp_proxy: ProxyFactory) -> Link:
    if request.param == "AMQP":
        proxy = await tcp_proxy(rabbit.url)
        # A manager that sees the node's queue deserted sends the same attempt again, and hears of it twice.
        return Link(proxy, [], {"CANOA_BROKER": proxy.via(rabbit.url)}, {}, "node_is_gone", None, 2)
    mosquitto: MosquittoNode = request.getfixturevalue("mosquitto")
    proxy = await tcp_proxy(mosquitto.url)
    args = ["--layer", "edge", "--mqtt", proxy.via(mosquitto.url)]
    managers = {"CANOA_MQTT": mosquitto.url, "CANOA_STEP_TRAVEL_S": "1"}
    # Its last will is heard at once, but nobody can look at its topic: what is out there stays so for its time.
    return Link(proxy, args, {"CANOA_BROKER": "memory://"}, managers, "node_left", 4.0, 1)


def runs(folder: Path) -> int:
    path = folder / "runs"
    return path.stat().st_size if path.exists() else 0


async def until_run(folder: Path, count: int = 1) -> None:
    await asyncio.to_thread(until, lambda: runs(folder) == count)


def seen(plant: Plant) -> dict[str, Any]:
    """As `canoa outbox` shows it, while the worker runs."""
    [box] = json.loads(plant.shell.canoa("outbox", BOX, "--json").stdout)
    assert isinstance(box, dict)
    return box


async def until_kept(plant: Plant, count: int = 1) -> None:
    async def is_kept() -> bool:
        return bool((await asyncio.to_thread(seen, plant))["messages"] == count)

    await until_true(is_kept)


async def test_killed_while_cut_off_a_node_tells_at_its_next_start_what_it_did_before(
    tmp_path: Path, rabbit: Rabbit, link: Link
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        await plant.manager(**link.managers)
        worker = await plant.node("gw-1", *link.args, **link.env)
        task = await plant.begin("tally", folder=str(tmp_path))
        await until_run(tmp_path)

        link.proxy.cut()
        (tmp_path / "release").touch()
        await until_kept(plant)
        worker.kill()
        link.proxy.restore()
        await plant.node("gw-1", *link.args, **link.env)

        assert await task.result(WITHIN_S) == 1
        assert runs(tmp_path) == 1


async def test_a_node_that_was_given_up_meanwhile_does_not_do_its_work_again(
    tmp_path: Path, rabbit: Rabbit, link: Link
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.manager(**link.managers)
        await plant.node("gw-1", *link.args, **link.env)
        task = await plant.begin("tally", folder=str(tmp_path))
        await until_run(tmp_path)

        link.proxy.cut()
        (tmp_path / "release").touch()
        await until_kept(plant)
        await asyncio.to_thread(manager.wait_logged, link.missed)
        link.proxy.restore()

        assert await task.result(WITHIN_S) == 1
        assert runs(tmp_path) == 1
        [step] = await plant.steps(task)
        assert [attempt.outcome for attempt in step.attempts][-1] == "ok"
        await until_true(lambda: has_counted(manager, ANSWERS, link.answers))
        assert await counted(manager, ANSWERS) == link.answers


async def test_what_a_node_did_that_was_cut_off_and_alive_is_run_again_elsewhere_and_each_such_run_is_counted(
    tmp_path: Path, rabbit: Rabbit, link: Link
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.hasty_manager(**link.managers)
        cut_off = await plant.node("gw-1", *link.args, program=HASTY, **link.env)
        await plant.node("gw-2")
        tasks = [await begun(plant, number, tmp_path, timeout_s=link.timeout_s) for number in range(TASKS)]
        await until_true(lambda: have_run(tmp_path, TASKS))

        link.proxy.cut()
        assert [await task.result(WITHIN_S) for task in tasks] == [2 * number for number in range(TASKS)]
        link.proxy.restore()
        again = len(noted(tmp_path)) - TASKS
        await until_true(lambda: works(plant, "gw-1"))  # after all that its queue had kept for it
        await until_true(lambda: has_counted(manager, CHANGED_NOTHING, again))

        assert cut_off.is_alive
        assert set(noted(tmp_path)) == {str(number) for number in range(TASKS)}
        assert again == len(noted(tmp_path)) - TASKS == await counted(manager, CHANGED_NOTHING) > 0
        await plant.every_task_has_one_end({task.id for task in tasks})


async def begun(plant: Plant, number: int, folder: Path, *, timeout_s: float | None) -> Handle[Any]:
    return await plant.begin("noted", timeout_s=timeout_s, number=number, folder=str(folder), seconds=2.0)


def noted(folder: Path) -> list[str]:
    path = folder / "noted"
    return path.read_text().split() if path.exists() else []


async def works(plant: Plant, node_id: str) -> bool:
    return bool(await (await plant.begin("where")).result(WITHIN_S) == node_id)


async def have_run(folder: Path, count: int) -> bool:
    return len(noted(folder)) >= count


async def _doomed(plant: Plant, *args: str, **env: str) -> Process:
    """A node that died after the work, and before its answer."""
    command = [sys.executable, "-m", "tests.acceptance.doomed_worker", APP, "--json", "--node-id", "gw-1"]
    worker = plant.shell.start(*command, *args, **env)
    await asyncio.to_thread(worker.wait_logged, "node_registered")
    return worker


@pytest.mark.parametrize(("always", "ran"), [("true", 1), ("false", 2)])
async def test_killed_between_its_work_and_the_answer_a_node_runs_it_again_unless_told_to_write_first(
    tmp_path: Path, rabbit: Rabbit, link: Link, always: str, ran: int
) -> None:
    env = {**link.env, "CANOA_OUTBOX_ALWAYS": always}
    async with Plant(tmp_path, rabbit) as plant:
        await plant.manager(**link.managers)
        doomed = await _doomed(plant, *link.args, **env)
        task = await plant.begin("tally", folder=str(tmp_path))
        await until_run(tmp_path)  # whatever it said of the delivery has left by now
        (tmp_path / "release").touch()
        await asyncio.to_thread(doomed.wait)
        assert runs(tmp_path) == 1

        await plant.node("gw-1", *link.args, **env)

        assert await task.result(WITHIN_S) == ran
        assert runs(tmp_path) == ran
