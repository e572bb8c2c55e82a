"""Nodes of three kinds side by side, none of which knows Canoa: over AMQP, MQTT and HTTP, under one manager."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.plant import WITHIN_S, Plant, until_true
from tests.acceptance.shell import ROOT

from canoa.testing.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit

    from canoa.testing import MosquittoNode

EXAMPLES = ROOT / "examples"
KINDS = {"amqp-1": "AMQP", "mqtt-1": "MQTT", "http-1": "HTTP"}


@pytest.fixture
def meter(mosquitto: MosquittoNode) -> Iterator[None]:
    """A device that is two programs of Mosquitto's."""
    command = [str(EXAMPLES / "mqtt_node.sh"), "mqtt-1", "-h", LOOPBACK, "-p", str(mosquitto.port)]
    process = subprocess.Popen(command, start_new_session=True)
    yield
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.rabbitmq
@pytest.mark.usefixtures("meter")
async def test_one_plan_runs_over_nodes_of_three_kinds(
    tmp_path: Path, rabbit: Rabbit, mosquitto: MosquittoNode
) -> None:
    """Each is written to the published wire alone, and gets what the one before gave."""
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.manager(CANOA_MQTT=mosquitto.url)
        [url] = [event["url"] for event in manager.events() if event["event"] == "api_ready"]
        plant.shell.start(sys.executable, str(EXAMPLES / "bare_node.py"), rabbit.url, "amqp-1", PYTHONPATH="")
        plant.shell.start(sys.executable, str(EXAMPLES / "http_node.py"), url, "http-1", PYTHONPATH="")
        await until_true(lambda: _are_there(plant))
        assert {name: row.protocol[:4] for name, row in (await plant.nodes()).items()} == KINDS

        plan = plant.app.plan("through-all")
        first = plan.step("shell.double", number=plan.input["number"])
        second = plan.step("web.triple", number=first["doubled"])
        plan.step("bare.double", number=second["tripled"])
        async with asyncio.timeout(WITHIN_S):
            results = await asyncio.gather(*(plan.call(number=number) for number in range(10)))

        assert results == [{"doubled": 12 * number} for number in range(10)]


async def _are_there(plant: Plant) -> bool:
    return KINDS.keys() <= (await plant.nodes()).keys()
