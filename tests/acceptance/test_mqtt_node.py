"""A device on MQTT, made of mosquitto's clients and the published wire: joins, works, vanishes and returns. On both
brokers: through RabbitMQ's plugin, and through a Mosquitto that RabbitMQ knows nothing of."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import pytest
from tests.acceptance.kept_depot import Rabbit
from tests.acceptance.plant import WITHIN_S, Plant, counted, until_true
from tests.acceptance.shell import ROOT
from tests.acceptance.test_faults_devices import Login, every_task_ends_once
from tests.acceptance.test_faults_outbox import noted, runs, until_kept, until_run

from canoa.action import Options
from canoa.errors import CanoaError
from canoa.testing import MosquittoNode, RabbitNode
from canoa.vocabulary import Layer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from canoa.client.handle import Handle
    from canoa.testing.pytest_plugin import ProxyFactory

SCRIPT = ROOT / "examples" / "mqtt_node.sh"
ROUTED = Options(dispatch="routed")
TASKS = 5

pytestmark = pytest.mark.rabbitmq


class Town(NamedTuple):
    """Managers are on `rabbit`; devices come in with `login`, and managers find them with `env`."""

    rabbit: Rabbit
    login: list[str]
    env: dict[str, str]
    mosquitto: MosquittoNode | None = None

    @property
    def mqtt_url(self) -> str:
        host, port = self.login[1], self.login[3]
        login = f"{quote(self.login[5], safe='')}:guest@" if len(self.login) > 4 else ""
        return f"mqtt://{login}{host}:{port}"

    def stop(self) -> None:
        """Nobody speaks MQTT any more: the plugin alone, or all of Mosquitto, as by a power cut."""
        if self.mosquitto is not None:
            self.mosquitto.kill()
        else:
            self.rabbit.node.ctl("eval", "ok = application:stop(rabbitmq_mqtt).")

    def start(self) -> None:
        """With what it had kept."""
        if self.mosquitto is not None:
            self.mosquitto.start()
        else:
            self.rabbit.node.ctl("eval", "ok = application:start(rabbitmq_mqtt).")

    @contextmanager
    def device(self, name: str) -> Iterator[None]:
        """Switched on inside the block; at its end it is gone at once."""
        process = subprocess.Popen([str(SCRIPT), name, *self.login], start_new_session=True)
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module")
def mqtt_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitNode]:
    """A RabbitMQ that also speaks MQTT."""
    with RabbitNode(tmp_path_factory.mktemp("rabbitmq"), plugins=["rabbitmq_mqtt"], schedulers=1) as node:
        yield node


@pytest.fixture(params=["rabbitmq", "mosquitto"])
def town(request: pytest.FixtureRequest, tmp_path: Path, mqtt_node: RabbitNode) -> Iterator[Town]:
    vhost = mqtt_node.add_vhost()
    rabbit = Rabbit(mqtt_node, mqtt_node.url(vhost))
    if request.param == "rabbitmq":
        port = str(mqtt_node.plugin_port("rabbitmq_mqtt"))
        yield Town(rabbit, ["-h", "127.0.0.1", "-p", port, "-u", f"{vhost}:guest", "-P", "guest"], {})
    else:
        (tmp_path / "mosquitto").mkdir()
        with MosquittoNode(tmp_path / "mosquitto") as mosquitto:
            login = ["-h", "127.0.0.1", "-p", str(mosquitto.port)]
            yield Town(rabbit, login, {"CANOA_MQTT": mosquitto.url}, mosquitto)
    mqtt_node.release_vhost(vhost)


async def is_known(plant: Plant, name: str) -> bool:
    return name in await plant.nodes()


async def begun(plant: Plant, number: int) -> Handle[Any]:
    return await plant.app.submit_raw("shell.double", b'{"number": %d}' % number, options=ROUTED)


async def doubled(plant: Plant, number: int) -> Any:
    return await (await begun(plant, number)).result(WITHIN_S)


async def test_a_device_on_mqtt_joins_at_the_edge_takes_a_message_answers_and_survives_a_manager_restart(
    tmp_path: Path, town: Town
) -> None:
    async with Plant(tmp_path, town.rabbit) as plant:
        manager = await plant.manager(**town.env)
        with town.device("meter-1"):
            await until_true(lambda: is_known(plant, "meter-1"))
            row = (await plant.nodes())["meter-1"]
            assert (row.layer, row.protocol[:4], row.actions) == (Layer.EDGE, "MQTT", ("shell.double",))
            assert await doubled(plant, 21) == {"doubled": 42}

            manager.kill()
            await plant.manager(**town.env)

            assert await doubled(plant, -4) == {"doubled": -8}


async def test_what_is_sent_to_a_device_that_vanished_arrives_when_it_returns(tmp_path: Path, town: Town) -> None:
    async with Plant(tmp_path, town.rabbit) as plant:
        await plant.manager(**town.env)
        with town.device("meter-2"):
            await until_true(lambda: is_known(plant, "meter-2"))
            assert await doubled(plant, 1) == {"doubled": 2}

        handles = [await begun(plant, number) for number in range(3)]
        with town.device("meter-2"):
            assert [await handle.result(WITHIN_S) for handle in handles] == [
                {"doubled": 0},
                {"doubled": 2},
                {"doubled": 4},
            ]


async def test_a_worker_joins_over_mqtt_alone_answers_and_its_last_will_says_that_it_is_gone(
    tmp_path: Path, town: Town
) -> None:
    async with Plant(tmp_path, town.rabbit) as plant:
        await plant.manager(**town.env)
        by_mqtt = ["--mqtt", town.mqtt_url, "--layer", "edge"]
        worker = await plant.node("gw-9", *by_mqtt, CANOA_BROKER="memory://")
        row = (await plant.nodes())["gw-9"]
        assert (row.layer, row.protocol[:4]) == (Layer.EDGE, "MQTT")

        [handle] = await plant.submit(1)
        assert await handle.result(WITHIN_S) == 0
        many = await plant.submit(200)
        assert [await each.result(WITHIN_S) for each in many] == [2 * number for number in range(1, 201)]
        failing = await plant.begin("hold")
        with pytest.raises(CanoaError, match="folder"):
            await failing.result(WITHIN_S)

        worker.kill()
        await until_true(lambda: has_left(plant, "gw-9"))


async def test_a_worker_joins_by_its_broker_and_over_mqtt_as_one_node_and_is_reached_by_either(
    tmp_path: Path, town: Town, tcp_proxy: ProxyFactory
) -> None:
    async with Plant(tmp_path, town.rabbit) as plant:
        manager = await plant.manager(**town.env)
        proxy = await tcp_proxy(town.rabbit.url)
        worker = await plant.node("gw-8", "--mqtt", town.mqtt_url, CANOA_BROKER=proxy.via(town.rabbit.url))
        topic = "MQTT-LINK" if town.mosquitto is not None else "MQTT"
        await until_true(lambda: has_ways(plant, "gw-8", ("AMQP", topic), closed=()))

        proxy.cut()
        [handle] = await plant.submit(1)
        assert await handle.result(15) == 0  # less than its time limit
        await until_true(lambda: has_ways(plant, "gw-8", ("AMQP", topic), closed=("AMQP",)))
        proxy.restore()
        await until_true(lambda: has_ways(plant, "gw-8", ("AMQP", topic), closed=()))

        assert await counted(manager, "canoa_registrations_refused_total") == 0
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
        await until_true(lambda: has_left(plant, "gw-8"))


async def has_ways(plant: Plant, name: str, ways: tuple[str, ...], *, closed: tuple[str, ...]) -> bool:
    row = (await plant.nodes()).get(name)
    return row is not None and (row.all_ways, row.closed) == (ways, closed)


async def has_left(plant: Plant, name: str) -> bool:
    return not (await plant.nodes())[name].actions


async def test_the_mqtt_broker_is_killed_and_comes_back_and_work_goes_on(tmp_path: Path, town: Town) -> None:
    async with Plant(tmp_path, town.rabbit) as plant:
        await plant.manager(**town.env)
        with town.device("meter-3"):
            await until_true(lambda: is_known(plant, "meter-3"))
            assert await doubled(plant, 1) == {"doubled": 2}

            broker = town.mosquitto or town.rabbit.node
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)

            assert await doubled(plant, 3) == {"doubled": 6}


@pytest.mark.parametrize("fate", ["lives", "is killed"])
async def test_a_worker_on_mqtt_alone_ends_its_work_while_that_broker_is_away_and_gets_what_came_meanwhile_afterwards(
    tmp_path: Path, town: Town, fate: str
) -> None:
    async with Plant(tmp_path, town.rabbit) as plant:
        await plant.manager(**town.env)
        by_mqtt = ["--mqtt", town.mqtt_url, "--layer", "edge"]
        worker = await plant.node("gw-1", *by_mqtt, CANOA_BROKER="memory://")
        under_way = [await plant.begin("tally", folder=str(tmp_path)) for _ in range(TASKS)]
        await until_run(tmp_path, TASKS)

        await asyncio.to_thread(town.stop)
        await asyncio.to_thread(worker.wait_logged, "mqtt_link_lost")
        meanwhile = [await plant.begin("noted", number=number, folder=str(tmp_path)) for number in range(TASKS)]
        (tmp_path / "release").touch()
        await until_kept(plant, TASKS)
        if fate == "is killed":
            worker.kill()
        await asyncio.to_thread(town.start)
        if fate == "is killed":
            await plant.node("gw-1", *by_mqtt, CANOA_BROKER="memory://")

        assert sorted([await handle.result(WITHIN_S) for handle in under_way]) == list(range(1, TASKS + 1))
        assert [await handle.result(WITHIN_S) for handle in meanwhile] == [2 * number for number in range(TASKS)]
        assert runs(tmp_path) == TASKS
        assert sorted(noted(tmp_path)) == [str(number) for number in range(TASKS)]
        await plant.every_task_has_one_end({handle.id for handle in (*under_way, *meanwhile)})


@pytest.mark.parametrize("town", ["rabbitmq"], indirect=True)
async def test_devices_of_the_plugin_vanish_and_return_and_every_task_ends_once_and_each_run_too_many_is_counted(
    tmp_path: Path, town: Town
) -> None:
    port, *login = town.login[3::2]
    async with Plant(tmp_path, town.rabbit) as plant:
        manager = await plant.manager(**town.env)

        await every_task_ends_once(plant, manager, 4 * [Login(int(port), *login)], times_each=15)


async def test_rabbitmqs_mqtt_plugin_is_restarted_under_a_device_and_work_goes_on(
    tmp_path: Path, mqtt_node: RabbitNode
) -> None:
    vhost = mqtt_node.add_vhost()
    port = str(mqtt_node.plugin_port("rabbitmq_mqtt"))
    town = Town(
        Rabbit(mqtt_node, mqtt_node.url(vhost)),
        ["-h", "127.0.0.1", "-p", port, "-u", f"{vhost}:guest", "-P", "guest"],
        {},
    )
    async with Plant(tmp_path, town.rabbit) as plant:
        await plant.manager()
        with town.device("meter-4"):
            await until_true(lambda: is_known(plant, "meter-4"))
            assert await doubled(plant, 1) == {"doubled": 2}

            restart = "application:stop(rabbitmq_mqtt), application:start(rabbitmq_mqtt)."
            assert await asyncio.to_thread(mqtt_node.ctl, "eval", restart) == "ok\n"

            assert await doubled(plant, 3) == {"doubled": 6}
    mqtt_node.release_vhost(vhost)
