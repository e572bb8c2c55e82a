"""A node that looks alive can receive work, or is shown as deaf, cut off or dead: with processes, and a real broker."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.acceptance.kept_depot import asked
from tests.acceptance.plant import HASTY, WITHIN_S, Plant, until_true
from tests.acceptance.shell import ROOT, until
from tests.integration.queue_thief import stealing

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit
    from tests.acceptance.shell import Process

FOUND_WITHIN_S = 90.0
"""A canary after 20 s of quiet, two misses, and a busy machine."""

BRIEF = {"CANOA_NODE_GRACE_S": "2"}
"""After which a node that is cut off is dead."""

BARE = ROOT / "examples" / "bare_node.py"


async def shown(manager: Process, node_id: str) -> dict[str, Any]:
    """As the API shows it; nothing while it is not known."""
    status, text = await asked(manager, f"/api/v1/nodes/{node_id}")
    found: dict[str, Any] = msgspec.json.decode(text) if status == 200 else {}
    return found


async def until_proof(manager: Process, node_id: str, *proofs: str) -> None:
    async def is_so() -> bool:
        return (await shown(manager, node_id)).get("proof") in proofs

    await until_true(is_so, FOUND_WITHIN_S)


@pytest.mark.rabbitmq
@pytest.mark.timeout(300)
async def test_a_worker_whose_messages_are_taken_is_deaf_gets_no_work_and_is_online_again_once_it_hears(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.manager()
        worker, _ = await plant.node("gw-1"), await plant.node("gw-2")
        await until_proof(manager, "gw-1", "online")

        async with stealing(rabbit.url, "gw-1"):
            await until_proof(manager, "gw-1", "deaf")
            assert (await shown(manager, "gw-1"))["state"] == "deaf"
            await plant.submit(10)
            await plant.every_handle_has_its_result()
            nodes = [
                step.attempts[-1].node_id for handle in plant.handles.values() for step in await plant.steps(handle)
            ]
            assert set(nodes) == {"gw-2"}
            assert await _metric(manager, 'canoa_nodes{layer="CLOUD",state="DEAF"} 1.0')
            assert await _ruled_out(manager, "gw-1") == "deaf: what is sent to its queue is not answered"

        await until_proof(manager, "gw-1", "online")
        assert worker.is_alive


@pytest.mark.rabbitmq
@pytest.mark.timeout(300)
async def test_a_worker_that_stays_deaf_says_so_and_ends_for_its_supervisor_to_start_it_again(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        worker = plant.start_node("gw-1", program=HASTY)
        await asyncio.to_thread(worker.wait_logged, "worker_ready")
        async with stealing(rabbit.url, "gw-1"):
            await asyncio.to_thread(until, lambda: not worker.is_alive, FOUND_WITHIN_S)

        assert worker.wait() == 1
        said = [event["event"] for event in worker.events()]
        assert said.count("worker_is_deaf") == 2
        assert "does not reach it; another program may take from its queue" in worker.said


@pytest.mark.rabbitmq
@pytest.mark.timeout(300)
async def test_a_stopped_worker_is_deaf_then_cut_off_then_dead_and_comes_back_when_it_goes_on(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.hasty_manager(**BRIEF)
        worker = await plant.node("gw-1", CANOA_HEARTBEAT_S="2")  # twice that after it stops, its link ends
        await until_proof(manager, "gw-1", "online")

        worker.send(signal.SIGSTOP)
        await until_proof(manager, "gw-1", "deaf", "cut_off")
        await until_proof(manager, "gw-1", "dead")
        held = await plant.begin("double", number=21)

        worker.send(signal.SIGCONT)
        await until_proof(manager, "gw-1", "online")
        assert await held.result(WITHIN_S) == 42
        assert worker.is_alive


@pytest.mark.rabbitmq
@pytest.mark.timeout(300)
async def test_a_killed_worker_is_cut_off_then_dead_and_its_successor_gets_work_at_once(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.hasty_manager(**BRIEF)
        worker = await plant.node("gw-1")
        await until_proof(manager, "gw-1", "online")

        worker.kill()
        await until_proof(manager, "gw-1", "cut_off")
        await until_proof(manager, "gw-1", "dead")

        await plant.node("gw-1")
        await plant.submit(3)
        await plant.every_handle_has_its_result()
        await until_proof(manager, "gw-1", "online")


@pytest.mark.rabbitmq
async def test_a_bare_node_is_unproven_and_works(tmp_path: Path, rabbit: Rabbit) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.manager()
        await plant.node("gw-1")
        plant.shell.start(sys.executable, str(BARE), rabbit.url, "bench-3", PYTHONPATH="")
        await until_proof(manager, "bench-3", "unproven")
        await until_proof(manager, "gw-1", "online")

        table = plant.shell.canoa("nodes", "--wide", CANOA_BROKER=rabbit.url).stdout
        assert {line.split()[0]: line.split()[4] for line in table.splitlines() if "AMQP" in line} == {
            "bench-3": "unproven",
            "gw-1": "online",
        }
        assert (await shown(manager, "bench-3"))["state"] == "here"


async def _metric(manager: Process, line: str) -> bool:
    _, text = await asked(manager, "/metrics")
    return line in text


async def _ruled_out(manager: Process, node_id: str) -> str:
    _, text = await asked(manager, "/api/v1/catalogue/plant.double/explanation")
    considered = {each["node_id"]: each for each in msgspec.json.decode(text)["considered"]}
    return str(considered[node_id]["ruled_out"])
