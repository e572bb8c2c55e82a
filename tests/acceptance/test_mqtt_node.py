"""A device on MQTT, made of mosquitto's clients and the published wire: joins, works, vanishes and returns."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest
from tests.acceptance.kept_depot import Rabbit
from tests.acceptance.plant import WITHIN_S, Plant, until_true
from tests.acceptance.shell import ROOT

from canoa.action import Options
from canoa.testing import RabbitNode
from canoa.vocabulary import Layer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCRIPT = ROOT / "examples" / "mqtt_node.sh"
ROUTED = Options(dispatch="routed")

pytestmark = pytest.mark.rabbitmq


@pytest.fixture(scope="module")
def mqtt_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitNode]:
    """A RabbitMQ that also speaks MQTT."""
    with RabbitNode(tmp_path_factory.mktemp("rabbitmq"), plugins=["rabbitmq_mqtt"], schedulers=1) as node:
        yield node


@pytest.fixture
def rabbit(mqtt_node: RabbitNode) -> Iterator[Rabbit]:
    vhost = mqtt_node.add_vhost()
    yield Rabbit(mqtt_node, mqtt_node.url(vhost))
    mqtt_node.release_vhost(vhost)


@contextmanager
def device(rabbit: Rabbit, name: str) -> Iterator[None]:
    """Switched on inside the block; at its end it is gone at once."""
    vhost = unquote(urlsplit(rabbit.url).path[1:])
    port = str(rabbit.node.plugin_port("rabbitmq_mqtt"))
    login = ["-h", "127.0.0.1", "-p", port, "-u", f"{vhost}:guest", "-P", "guest"]
    process = subprocess.Popen([str(SCRIPT), name, *login], start_new_session=True)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def is_known(plant: Plant, name: str) -> bool:
    return name in await plant.nodes()


async def doubled(plant: Plant, number: int) -> Any:
    handle = await plant.app.submit_raw("shell.double", b'{"number": %d}' % number, options=ROUTED)
    return await handle.result(WITHIN_S)


async def test_a_device_on_mqtt_joins_at_the_edge_takes_a_message_answers_and_survives_a_manager_restart(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.manager()
        with device(rabbit, "meter-1"):
            await until_true(lambda: is_known(plant, "meter-1"))
            row = (await plant.nodes())["meter-1"]
            assert (row.layer, row.protocol, row.actions) == (Layer.EDGE, "MQTT", ("shell.double",))
            assert await doubled(plant, 21) == {"doubled": 42}

            manager.kill()
            await plant.manager()

            assert await doubled(plant, -4) == {"doubled": -8}


async def test_what_is_sent_to_a_device_that_vanished_arrives_when_it_returns(tmp_path: Path, rabbit: Rabbit) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        await plant.manager()
        with device(rabbit, "meter-2"):
            await until_true(lambda: is_known(plant, "meter-2"))
            assert await doubled(plant, 1) == {"doubled": 2}

        handles = [
            await plant.app.submit_raw("shell.double", b'{"number": %d}' % number, options=ROUTED)
            for number in range(3)
        ]
        with device(rabbit, "meter-2"):
            assert [await handle.result(WITHIN_S) for handle in handles] == [
                {"doubled": 0},
                {"doubled": 2},
                {"doubled": 4},
            ]
