"""Nodes that die, are cut off, or take work and never answer; and those that register without end."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.foreign_node import ForeignNode, linked, registration
from tests.acceptance.plant import HASTY, WITHIN_S, Plant, counted, until_true
from tests.acceptance.shell import until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit
    from tests.acceptance.shell import Process

    from canoa.testing.proxy import TcpProxy
    from canoa.testing.pytest_plugin import ProxyFactory

NODES = 100
REGISTRATIONS = 10_000
SENT_WITHIN_S = 10.0  # meant to be one; a busy machine takes longer, and a flood that trickles is none
CUT_FOR_S = 30.0  # more than two heartbeats of the link, and than the silence after which a worker joins anew
HASTY_CUT_FOR_S = 10.0  # longer than those in a hurry wait for a sign: of the node, of the manager


@pytest.mark.rabbitmq
async def test_a_step_whose_worker_is_killed_goes_to_another_one(tmp_path: Path, rabbit: Rabbit) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        await plant.manager()
        workers = {name: await plant.node(name) for name in ("gw-1", "gw-2")}
        held = await plant.begin("hold", folder=str(tmp_path))
        first = await _holder(tmp_path)

        workers[first].kill()
        other = await _holder(tmp_path, other_than=first)
        (tmp_path / "release").touch()

        assert await held.result(WITHIN_S) == other
        [step] = await plant.steps(held)
        assert [attempt.node_id for attempt in step.attempts] == [first, other]


@pytest.mark.rabbitmq
async def test_a_step_on_the_only_worker_that_is_killed_waits_for_its_return(tmp_path: Path, rabbit: Rabbit) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        await plant.manager()
        worker = await plant.node("gw-1")
        held = await plant.begin("hold", folder=str(tmp_path))
        await _holder(tmp_path)

        worker.kill()
        (tmp_path / "release").touch()
        await plant.node("gw-1")

        assert await held.result(WITHIN_S) == "gw-1"


@pytest.mark.rabbitmq
@pytest.mark.timeout(180)
@pytest.mark.parametrize("when", ["later", "at once"])
async def test_of_two_live_workers_with_one_id_one_ends_and_says_why_and_no_task_suffers(
    tmp_path: Path, rabbit: Rabbit, when: str
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        await plant.manager()
        workers = [await plant.node("gw-1") if when == "later" else plant.start_node("gw-1", program=HASTY)]
        workers.append(plant.start_node("gw-1", program=HASTY))
        await until_true(lambda: _is_known(plant, "gw-1"))

        await plant.submit(20, seconds=0.1)
        await asyncio.to_thread(until, lambda: not all(worker.is_alive for worker in workers), WITHIN_S)
        await plant.submit(20)

        await plant.everything_is_recorded_once_and_nothing_is_left()
        [ended] = [worker for worker in workers if not worker.is_alive]
        assert ended.wait() == 1
        assert "node_id_taken" in [event["event"] for event in ended.events()]
        assert "another live worker has the node id 'gw-1'; give this one an id of its own" in ended.said


def cut(proxy: TcpProxy) -> None:
    """Both sides hear of it at once."""
    proxy.cut()


def stall(proxy: TcpProxy) -> None:
    """Neither hears of it."""
    proxy.stall()


@pytest.mark.rabbitmq
@pytest.mark.timeout(180)
@pytest.mark.parametrize("trouble", [cut, stall])
async def test_a_worker_whose_link_is_cut_for_thirty_seconds_goes_on_and_nothing_is_lost(
    tmp_path: Path, rabbit: Rabbit, tcp_proxy: ProxyFactory, trouble: Callable[[TcpProxy], None]
) -> None:
    proxy = await tcp_proxy(rabbit.url)
    async with Plant(tmp_path, rabbit) as plant:
        await plant.manager()
        worker = await plant.node("gw-1", CANOA_BROKER=proxy.via(rabbit.url))

        await _cut_under_load(plant, proxy, CUT_FOR_S, trouble)

        await plant.everything_is_recorded_once_and_nothing_is_left()
        assert worker.is_alive
        assert "broker_link_restored" in worker.said  # it gave up the old link, also the one that only fell silent


@pytest.mark.rabbitmq
@pytest.mark.timeout(180)
async def test_a_worker_whose_link_is_cut_for_longer_than_anybody_waits_for_a_sign_goes_on_and_nothing_is_lost(
    tmp_path: Path, rabbit: Rabbit, tcp_proxy: ProxyFactory
) -> None:
    proxy = await tcp_proxy(rabbit.url)
    async with Plant(tmp_path, rabbit) as plant:
        await plant.hasty_manager()
        worker = await plant.node("gw-1", program=HASTY, CANOA_BROKER=proxy.via(rabbit.url))

        await _cut_under_load(plant, proxy, HASTY_CUT_FOR_S, cut)

        await plant.everything_is_recorded_once_and_nothing_is_left()
        assert worker.is_alive


async def _cut_under_load(plant: Plant, proxy: TcpProxy, seconds: float, trouble: Callable[[TcpProxy], None]) -> None:
    async with plant.load(pause_s=0.5):
        await plant.some_results()
        trouble(proxy)
        await asyncio.sleep(seconds)
        proxy.restore()
        proxy.resume()
        await plant.some_results()


# --- Takes work, and never answers ----------------------------------------------------------------------


@pytest.mark.rabbitmq
async def test_a_node_that_never_answers_loses_its_work_and_then_its_turn(tmp_path: Path, rabbit: Rabbit) -> None:
    async with Plant(tmp_path, rabbit) as plant, linked(plant.app) as broker:
        deaf = ForeignNode("deaf", broker)
        await plant.manager(CANOA_STEP_TRAVEL_S="0.5")
        await deaf.join("plant.told_at")
        await plant.node("gw-1")

        await _tell(plant, 20)
        await until_true(lambda: _is_down(plant, "deaf"))
        taken = len(deaf.taken)
        await _tell(plant, 20)

        assert len(deaf.taken) == taken >= 3


@pytest.mark.rabbitmq
async def test_a_node_whose_circuit_is_open_gets_one_trial_and_by_its_answer_its_turn_again(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with Plant(tmp_path, rabbit) as plant, linked(plant.app) as broker:
        deaf = ForeignNode("deaf", broker)
        await plant.manager(CANOA_STEP_TRAVEL_S="0.5", CANOA_NODE_FAILURES="1", CANOA_NODE_DOWN_S="3")
        await deaf.join("plant.told_at")
        await plant.node("gw-1")
        await _tell(plant, 2)  # one to each
        assert len(deaf.taken) == 1

        deaf.answer = "1"
        await asyncio.sleep(3)
        await _tell(plant, 1)
        await until_true(lambda: _has_taken(deaf, 2))
        await until_true(lambda: _is_up(plant, "deaf"))
        await _tell(plant, 4)

        assert len(deaf.taken) == 4


async def _has_taken(node: ForeignNode, count: int) -> bool:
    return len(node.taken) >= count


async def _is_up(plant: Plant, node_id: str) -> bool:
    return not await _is_down(plant, node_id)


async def _tell(plant: Plant, times: int) -> None:
    handles = [await plant.begin("told_at", timeout_s=1) for _ in range(times)]
    for handle in handles:
        await handle.result(WITHIN_S)


async def _is_down(plant: Plant, node_id: str) -> bool:
    async with plant.opened() as store:
        return any(row.node_id == node_id and row.down_until_ms for row in await store.breakers())


# --- Registers without end --------------------------------------------------------------------------------


@pytest.mark.rabbitmq
@pytest.mark.parametrize("is_forced", [False, True], ids=["unforced", "forced"])
async def test_ten_thousand_registrations_at_once_are_one_write_for_each_node_and_change_and_no_task_suffers(
    tmp_path: Path, rabbit: Rabbit, is_forced: bool
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        await _flood(plant, [await plant.manager()], is_forced=is_forced)


@pytest.mark.rabbitmq
@pytest.mark.postgres
@pytest.mark.parametrize("is_forced", [False, True], ids=["unforced", "forced"])
async def test_ten_thousand_registrations_at_two_managers_are_one_write_for_each_node_and_change_and_no_task_suffers(
    tmp_path: Path, rabbit: Rabbit, postgres_url: str, is_forced: bool
) -> None:
    async with Plant(tmp_path, rabbit, postgres_url) as plant:
        await _flood(plant, await asyncio.gather(plant.manager(), plant.manager()), is_forced=is_forced)


async def _flood(plant: Plant, managers: Sequence[Process], *, is_forced: bool) -> None:
    names = [f"node-{number}" for number in range(NODES)]
    flood = [registration(name, "plant.idle", is_forced=is_forced) for name in names] * (REGISTRATIONS // NODES)
    async with linked(plant.app) as broker:
        # As published: it registers once, where a worker of ours says more, and so is written more often.
        await ForeignNode("gw-1", broker, answer=lambda data: str(2 * data["number"])).join("plant.double")
        await until_true(lambda: _is_known(plant, "gw-1"))

        async with plant.load(has_braids=False):  # the node knows one action
            await plant.some_results()
            before = await _taken(managers)
            began_s = time.monotonic()
            assert not any(await broker.publish_many(flood))
            took_s = time.monotonic() - began_s
            submitted = len(plant.handles)
            await until_true(lambda: _have_taken(managers, before, len(flood)))
        print(f"{len(flood):,} registrations sent in {took_s:.2f} s, taken in {time.monotonic() - began_s:.2f} s")
        print(f"{submitted} tasks")
        assert took_s < SENT_WITHIN_S

        await plant.everything_is_recorded_once_and_nothing_is_left()
        await broker.publish(registration("node-0", "plant.idle", "plant.hold", is_forced=is_forced))
        await until_true(lambda: _has_changed(plant, "node-0"))

    rows = await plant.nodes()
    assert set(rows) == {"gw-1", *names}
    assert max(row.version for row in rows.values()) == 1 + NODES + 1
    assert all(manager.is_alive for manager in managers)


async def _taken(managers: Sequence[Process]) -> list[float]:
    return [await counted(manager, "canoa_registrations_total") for manager in managers]


async def _have_taken(managers: Sequence[Process], before: Sequence[float], count: int) -> bool:
    """All of them, and each manager some."""
    new = [now - then for now, then in zip(await _taken(managers), before, strict=True)]
    return all(new) and sum(new) >= count


async def _has_changed(plant: Plant, node_id: str) -> bool:
    row = (await plant.nodes()).get(node_id)
    return row is not None and len(row.actions) == 2


# --- Helpers --------------------------------------------------------------------------------------------------


async def _holder(folder: Path, *, other_than: str = "") -> str:
    """The node that runs what is held."""
    found: list[str] = []

    def is_held() -> bool:
        found[:] = [path.name for path in folder.glob("gw-*") if path.name != other_than]
        return bool(found)

    await asyncio.to_thread(until, is_held)
    return found[0]


async def _is_known(plant: Plant, node_id: str) -> bool:
    return node_id in await plant.nodes()
