"""A device on MQTT that offers canaries is online while it answers them, and deaf while it only registers."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.plant import Plant
from tests.acceptance.shell import ROOT
from tests.acceptance.test_proven_health import until_proof

from canoa.testing import MosquittoNode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit
    from tests.acceptance.shell import Process

SCRIPT = ROOT / "tests" / "acceptance" / "canary_device.sh"


@contextmanager
def device(name: str, folder: Path, mosquitto: MosquittoNode) -> Iterator[None]:
    login = ["-h", "127.0.0.1", "-p", str(mosquitto.port)]
    process = subprocess.Popen([str(SCRIPT), name, str(folder), *login], start_new_session=True)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.rabbitmq
@pytest.mark.mosquitto
async def test_a_device_that_registers_and_does_not_hear_is_deaf_until_it_does(tmp_path: Path, rabbit: Rabbit) -> None:
    (tmp_path / "mosquitto").mkdir()
    with MosquittoNode(tmp_path / "mosquitto") as mosquitto:
        async with Plant(tmp_path, rabbit) as plant:
            manager = await hurried_manager(plant, mosquitto)
            with device("meter-1", tmp_path, mosquitto):
                await until_proof(manager, "meter-1", "online")

                (tmp_path / "deaf").touch()
                await until_proof(manager, "meter-1", "deaf")
                nodes, explained = await asyncio.gather(canoa(plant, "nodes"), canoa(plant, "explain", "shell.double"))

                (tmp_path / "deaf").unlink()
                await until_proof(manager, "meter-1", "online")

    (shown,) = [line.split() for line in nodes.splitlines() if "meter-1" in line]
    assert shown[:5] == ["meter-1", "EDGE", "-", "MQTT", "deaf"]
    assert "shell.double would wait: no node can take it now." in explained
    assert "deaf: what is sent to its queue is not answered" in explained


async def hurried_manager(plant: Plant, mosquitto: MosquittoNode) -> Process:
    command = [sys.executable, "-m", "tests.acceptance.hurried", "manager", "--json"]
    manager = plant.shell.start(*command, "--store", plant.store_url, "--port", "0", CANOA_MQTT=mosquitto.url)
    return await plant.ready(manager)


async def canoa(plant: Plant, *args: str) -> str:
    run = await asyncio.to_thread(plant.shell.canoa, *args)
    return run.stdout + run.stderr
