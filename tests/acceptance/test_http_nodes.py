"""Nodes over HTTP: without any broker, by the published wire alone, and where the broker is away for a while."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.acceptance.kept_depot import TOKEN, asked
from tests.acceptance.plant import APP, WITHIN_S, Plant, until_true
from tests.acceptance.shell import CANOA, DEPOT, ROOT, Process, Shell, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit

PORT = "0"


class House:
    """A `canoa up` without a broker, and whoever joins it over HTTP."""

    def __init__(self, shell: Shell, **settings: str) -> None:
        self.shell = shell
        shell.env |= settings
        self.up = shell.start(str(CANOA), "up", DEPOT, "--port", PORT)
        self.up.wait_logged("Ctrl-C")
        self.url = (shell.folder / ".canoa" / "address").read_text().strip()

    def worker(self, name: str, *options: str, says: str = "node_registered") -> Process:
        command = [str(CANOA), "worker", APP, "--json", "--node-id", name, "--manager", self.url, "--drain", "2"]
        worker = self.shell.start(*command, *options)
        worker.wait_logged(says)
        return worker

    def restart(self) -> None:
        """Killed, and started again at the same address."""
        self.up.kill()
        port = self.url.rpartition(":")[2]
        self.up = self.shell.start(str(CANOA), "up", DEPOT, "--port", port)
        self.up.wait_logged("Ctrl-C")

    def nodes(self) -> dict[str, dict[str, Any]]:
        return {each["id"]: each for each in json.loads(self.shell.canoa("nodes", "--json").stdout)}

    def submit(self, action: str, **arguments: Any) -> str:
        """Routed; its id."""
        plan = {"plan": "one", "steps": {"only": {"action": action, "with": arguments}}}
        path = self.shell.folder / "one.json"
        path.write_text(json.dumps(plan))
        said = self.shell.canoa("submit", str(path), "{}", "--json")
        assert said.returncode == 0, said.stderr
        return str(json.loads(said.stdout)["id"])

    def result(self, task_id: str) -> Any:
        said = self.shell.canoa("result", task_id, "--wait", "20")
        assert said.returncode == 0, said.stderr
        return json.loads(said.stdout)

    def attempts(self, task_id: str) -> list[tuple[str, str]]:
        """Which nodes had it, and how it went."""
        [step] = json.loads(self.shell.canoa("task", "show", task_id, "--json").stdout)["steps"]
        return [(each["node_id"], each["outcome"]) for each in step["attempts"]]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path, folder=tmp_path / "project")
    shell.folder.mkdir()
    shell.env |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "CANOA_API_TOKEN": TOKEN}
    yield shell
    shell.close()


@pytest.fixture
def house(shell: Shell) -> House:
    return House(shell)


def test_a_worker_in_a_second_process_joins_over_http_where_there_is_no_broker(house: House) -> None:
    worker = house.worker("second")

    task_id = house.submit("plant.double", number=21)

    assert house.result(task_id) == 42
    assert house.attempts(task_id) == [("second", "ok")]
    assert house.nodes()["second"]["protocol"] == "HTTP"
    assert house.nodes()["second"]["endpoint"].startswith("http://127.0.0.1:")

    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert house.nodes()["second"]["state"] == "left"


def test_a_worker_over_http_registers_again_with_a_manager_that_was_killed_and_its_work_goes_on(
    house: House, tmp_path: Path
) -> None:
    house.worker("second")
    task_id = house.submit("plant.hold", folder=str(tmp_path))
    until((tmp_path / "second").exists)

    house.restart()
    (tmp_path / "release").touch()

    assert house.result(task_id) == "second"
    until(lambda: house.nodes()["second"]["state"] == "here")
    assert house.result(house.submit("plant.double", number=4)) == 8


def test_the_work_of_a_killed_worker_over_http_goes_to_another_within_seconds(house: House, tmp_path: Path) -> None:
    first = house.worker("first")
    task_id = house.submit("plant.hold", folder=str(tmp_path))
    until((tmp_path / "first").exists)
    house.worker("other")

    first.kill()
    until((tmp_path / "other").exists)
    (tmp_path / "release").touch()

    assert house.result(task_id) == "other"
    assert house.attempts(task_id) == [("first", "lost"), ("other", "ok")]


def test_a_second_worker_with_the_id_of_a_live_one_is_refused(house: House) -> None:
    house.worker("only")

    command = [str(CANOA), "worker", APP, "--json", "--node-id", "only", "--manager", house.url, "--drain", "1"]
    rival = house.shell.start(*command)

    assert rival.wait() != 0
    assert "node_id_taken" in rival.said
    assert house.result(house.submit("plant.double", number=1)) == 2


def test_a_node_of_pythons_own_library_joins_by_the_published_wire_over_http(house: House) -> None:
    house.shell.start(sys.executable, str(ROOT / "examples" / "http_node.py"), house.url, "bare-1")
    until(lambda: "bare-1" in house.nodes())

    task_id = house.submit("web.triple", number=14)

    assert house.result(task_id) == {"tripled": 42}
    assert (house.nodes()["bare-1"]["layer"], house.nodes()["bare-1"]["protocol"]) == ("FOG", "HTTP")


def test_messages_without_the_nodes_token_are_not_run(house: House) -> None:
    house.worker("guarded")
    endpoint = house.nodes()["guarded"]["endpoint"]
    body = {"actionTo": "urn:sapparchi:Action:plant.double", "requestID": "x.0.1.1", "messageData": '{"number": 1}'}

    said = house.shell.start(
        sys.executable,
        "-c",
        "import sys, urllib.request as r, urllib.error as e\n"
        "try: r.urlopen(r.Request(sys.argv[1], sys.argv[2].encode(), {'Authorization': 'Bearer guessed'}))\n"
        "except e.HTTPError as exc: sys.exit(exc.code // 10)",
        f"{endpoint}/sapparchi/messages",
        json.dumps(body),
    )

    assert said.wait() == 40


def test_a_worker_whose_address_managers_may_not_call_says_what_to_set_and_one_that_they_may_joins(
    shell: Shell,
) -> None:
    house = House(shell, CANOA_NODE_ENDPOINTS="127.0.0.2")

    refused = house.worker("here", "--http", "127.0.0.1:0", says="registration_not_taken")
    house.worker("next-door", "--http", "127.0.0.2:0")

    assert "is not among node_endpoints=127.0.0.2" in refused.said
    assert house.result(house.submit("plant.double", number=3)) == 6
    assert house.nodes().keys() & {"here", "next-door"} == {"next-door"}


def test_a_manager_does_not_call_itself(house: House) -> None:
    itself = house.worker("loop", "--endpoint", house.url, says="registration_not_taken")

    assert "is where this manager itself listens" in itself.said


@pytest.mark.rabbitmq
async def test_while_the_broker_is_away_work_goes_on_over_http_and_returns_to_the_broker_afterwards(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.manager()
        (ready,) = [event for event in manager.events() if event["event"] == "api_ready"]
        worker = await plant.node("gw-1", "--http", "127.0.0.1:0", "--manager", ready["url"])
        await until_true(lambda: has_ways(plant, "gw-1", ("AMQP", "HTTP")))
        assert await doubled(manager, 1) == 2

        await asyncio.to_thread(rabbit.node.kill)
        away = [await doubled(manager, number) for number in range(2, 6)]
        await asyncio.to_thread(rabbit.node.start)
        [handle] = await plant.submit(1)

        assert away == [4, 6, 8, 10]
        assert await handle.result(WITHIN_S) == 0
        moved = [event for event in manager.events() if event["event"] == "node_reached_otherwise"]
        assert moved[0]["way"] == "HTTP"
        await until_true(lambda: is_reached_by(manager, "AMQP", plant))
        assert manager.is_alive
        assert worker.is_alive


async def has_ways(plant: Plant, name: str, ways: tuple[str, ...]) -> bool:
    rows = await plant.nodes()
    return name in rows and rows[name].all_ways == ways


async def is_reached_by(manager: Process, way: str, plant: Plant) -> bool:
    [handle] = await plant.submit(1)
    await handle.result(WITHIN_S)
    moved = [event for event in manager.events() if event["event"] == "node_reached_otherwise"]
    return bool(moved[-1]["way"] == way)


async def doubled(manager: Process, number: int) -> Any:
    """Submitted and awaited over the API, which needs no broker."""
    order = {"action": "plant.double", "arguments": {"number": number}, "dispatch": "routed"}
    status, said = await asked(manager, "/api/v1/tasks", order)
    assert status == 201, said
    status, said = await asked(manager, f"/api/v1/tasks/{json.loads(said)['id']}/result?wait=30")
    assert status == 200, said
    return json.loads(said)["result"]
