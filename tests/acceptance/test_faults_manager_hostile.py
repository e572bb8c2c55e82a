"""What nobody should send to managers: it is refused, told and counted; nothing is lost, and nothing crashes."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.acceptance.foreign_node import ForeignNode, linked, registration, step_result
from tests.acceptance.kept_depot import asked
from tests.acceptance.plant import WITHIN_S, Plant, counted, has_counted, until_true

from canoa.api.documents import PREFIX
from canoa.broker import topology
from canoa.broker.port import Message, Publication, Queue
from canoa.errors import ActionFailed
from canoa.wire.sapparchi import MAX_REGISTRATION_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit
    from tests.acceptance.shell import Process

    from canoa.broker.port import Delivery

DOUBLE: Final = "urn:sapparchi:Action:plant.double"


def request(**fields: Any) -> bytes:
    return json.dumps({"id": "r-1", "target_actions": [DOUBLE], "message_data": '{"number": 1}', **fields}).encode()


def planned(*steps: tuple[str, str, list[str]]) -> bytes:
    plan = [{"step": step, "action": action, "after": after} for step, action, after in steps]
    return request(target_actions=[], task_id="urn:sapparchi:Task:bad", task_plan=plan)


# Name to body, why it is refused, and what its caller reads.
REQUESTS: Final = {
    "no JSON": (b"\xff{", "malformed", ""),
    "wrong JSON in message_data": (request(message_data="{"), "malformed", "is not JSON"),
    "an unknown action": (
        request(target_actions=["urn:sapparchi:Action:plant.nothing"]),
        "unknown_action",
        "plant.nothing",
    ),
    "an unknown plan": (request(target_actions=[], task_id="urn:sapparchi:Task:nothing"), "unknown_plan", "nothing"),
    "a cycle": (planned(("a", DOUBLE, ["b"]), ("b", DOUBLE, ["a"])), "plan", "a → b → a"),
    "a step that waits for a missing one": (planned(("a", DOUBLE, ["z"])), "plan", "z"),
    "strange characters": (request(target_actions=["urn:sapparchi:Action:plant.*\n#"]), "plan", "plant."),
}


@pytest.mark.rabbitmq
async def test_a_request_that_cannot_run_is_refused_and_logged_with_its_reason_and_the_next_one_runs(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with Plant(tmp_path, rabbit) as plant, linked(plant.app) as broker:
        manager = await plant.manager()
        await plant.node("gw-1")
        heard: asyncio.Queue[Delivery] = asyncio.Queue()
        await broker.consume("caller", heard.put_nowait, prefetch=10, topology=[Queue(name="caller")])

        for name, (body, _, reason) in REQUESTS.items():
            message = Message(body=body, reply_to="caller", message_id="r-1")
            await broker.publish(Publication(message=message, key=topology.TASK_REQUESTS))
            async with asyncio.timeout(WITHIN_S):
                told = (await heard.get()).message
            assert (told.type, reason in told.body.decode()) == ("refused", True), (name, told.body)

        await plant.some_results()
        assert await counted(manager, "canoa_requests_refused_total") == len(REQUESTS)
        logged = _logged(manager, "request_refused")
        assert [event["why"] for event in logged] == [why for _, why, _ in REQUESTS.values()]
        assert all(said in event["reason"] for event, (_, _, said) in zip(logged, REQUESTS.values(), strict=True))
        assert manager.is_alive


@pytest.mark.rabbitmq
async def test_a_registration_nobody_can_believe_is_counted_and_logged_and_changes_nothing(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    huge = registration("huge", *[f"plant.action{number}" + "x" * 400 for number in range(1_000)])
    assert len(huge.message.body) > MAX_REGISTRATION_BYTES
    strange = [registration("strange\n", "plant.double"), registration("strange *", "plant.double")]
    bad = [huge, *strange, registration("urn", "plant.*#\n"), _raw(b"{"), _raw(b"[]")]
    async with Plant(tmp_path, rabbit) as plant, linked(plant.app) as broker:
        manager = await plant.manager()
        await plant.node("gw-1")

        assert not any(await broker.publish_many(bad))
        await until_true(lambda: has_counted(manager, "canoa_registrations_refused_total", len(bad)))

        assert set(await plant.nodes()) == {"gw-1"}
        logged = _logged(manager, "registration_refused")  # each reason once in ten seconds
        assert [event["reason"] for event in logged] == ["oversized", "malformed", "node_id", "actions"]
        assert all(event["why"] for event in logged)
        await plant.some_results()
        assert manager.is_alive


@pytest.mark.rabbitmq
async def test_a_second_live_endpoint_that_claims_a_nodes_id_gets_none_of_its_work(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with Plant(tmp_path, rabbit) as plant, linked(plant.app) as broker:
        manager = await plant.manager()
        await plant.node("gw-1")

        await broker.publish(registration("gw-1", "plant.double", "plant.hold", is_forced=True))

        await until_true(lambda: has_counted(manager, "canoa_registrations_refused_total", 1))
        [logged] = _logged(manager, "registration_refused")
        assert (logged["reason"], logged["node_id"]) == ("rival", "gw-1")
        row = (await plant.nodes())["gw-1"]
        assert row.type != "foreign"
        await plant.some_results()


@pytest.mark.rabbitmq
async def test_answers_nobody_asked_for_change_nothing_and_are_counted(tmp_path: Path, rabbit: Rabbit) -> None:
    answers = [
        b"no json",
        b"[]",
        json.dumps({"actionTo": DOUBLE, "requestID": "nobody.0.1.0", "messageData": "1"}).encode(),
        json.dumps({"actionTo": DOUBLE, "requestID": "\n../..", "messageData": "1"}).encode(),
    ]
    async with Plant(tmp_path, rabbit) as plant, linked(plant.app) as broker:
        manager = await plant.manager()
        await plant.node("gw-1")

        assert not any(await broker.publish_many([step_result(body) for body in answers]))
        await until_true(lambda: has_counted(manager, "canoa_step_results_total", len(answers)))

        logged = _logged(manager, "step_result_refused")
        assert [event["verdict"] for event in logged] == ["malformed", "malformed", "foreign"]
        assert "requestID" in logged[-1]["reason"]
        await plant.some_results()
        await plant.everything_is_recorded_once_and_nothing_is_left()
        assert manager.is_alive


@pytest.mark.rabbitmq
async def test_a_node_that_answers_no_json_fails_its_step_and_the_caller_hears_why(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with Plant(tmp_path, rabbit) as plant, linked(plant.app) as broker:
        manager = await plant.manager()
        mad = ForeignNode("mad", broker, answer="{")
        await mad.join("plant.mad")
        await until_true(lambda: _knows(plant, "mad"))

        handle = await plant.begin("mad")

        with pytest.raises(ActionFailed, match="its node answered with data that cannot be read"):
            await handle.result(WITHIN_S)
        [step] = await plant.steps(handle)
        assert len(mad.taken) == len(step.attempts) > 1  # it was tried again before
        logged = _logged(manager, "step_result_refused")
        assert [event["verdict"] for event in logged] == ["malformed"] * len(mad.taken)
        assert all("JSON" in event["reason"] for event in logged)
        assert manager.is_alive


@pytest.mark.rabbitmq
async def test_a_plan_that_cannot_run_is_a_clear_error_of_the_api(tmp_path: Path, rabbit: Rabbit) -> None:
    steps = {"a": {"action": "plant.double", "after": ["b"]}, "b": {"action": "plant.double", "after": ["a"]}}
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.manager()
        await plant.node("gw-1")

        status, said = await asked(manager, f"{PREFIX}/tasks", {"plan": {"plan": "bad", "steps": steps}})

        assert 400 <= status < 500
        assert "a → b → a" in said


# --- Helpers ------------------------------------------------------------------------------------------------


def _logged(manager: Process, event: str) -> list[dict[str, Any]]:
    return [each for each in manager.events() if each["event"] == event]


def _raw(body: bytes) -> Publication:
    message = Message(body=body)
    return Publication(message=message, exchange=topology.AMQ_TOPIC, key=topology.NODES_REGISTER, mandatory=False)


async def _knows(plant: Plant, node_id: str) -> bool:
    return node_id in await plant.nodes()
