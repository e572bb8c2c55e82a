"""What cannot run is refused with a reason and counted; what changes nothing is counted; nothing crashes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.integration.dispatch.site import eventually, steps_of

from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.errors import Undecodable
from canoa.wire import sapparchi

if TYPE_CHECKING:
    from tests.integration.dispatch.site import Site

    from canoa.broker.port import HeaderValue
    from canoa.manager.hosting import Hosted

URN = "urn:sapparchi:Action:plant.double"


def _request(**changed: Any) -> bytes:
    return msgspec.json.encode({"id": "bad", "target_actions": [URN], "message_data": "1"} | changed)


def _cycle() -> list[dict[str, Any]]:
    return [{"step": "a", "action": URN, "after": ["b"]}, {"step": "b", "action": URN, "after": ["a"]}]


@pytest.mark.parametrize(
    ("body", "reason", "words"),
    [
        (b"{", "malformed", "no TaskRequest"),
        (b"\xff\xfe", "malformed", "no TaskRequest"),
        (b"[]", "malformed", "no TaskRequest"),
        (_request(id=""), "malformed", "printable characters"),
        (_request(message_data="{"), "malformed", "not JSON"),
        (_request(message_data="[" * 5000), "malformed", "nested"),
        (_request(message_data='"' + "x" * 2_000_000 + '"'), "too_large", "over the limit"),
        (_request(target_actions=["urn:sapparchi:Action:plant.dou#ble"]), "plan", "dou#ble"),
        (_request(target_actions=[]), "plan", "names no plan"),
        (_request(task_id="urn:sapparchi:Task:x", task_plan=_cycle()), "plan", "wait for each other"),
        (
            _request(task_id="x", task_plan=[{"step": "a", "action": URN, "after": ["nowhere"]}]),
            "plan",
            "nowhere",
        ),
        (_request(target_actions=[], task_id="urn:sapparchi:Task:nowhere"), "unknown_plan", "nowhere"),
    ],
)
async def test_a_request_that_cannot_run_is_refused_with_its_reason(
    memory_site: Site, body: bytes, reason: str, words: str
) -> None:
    manager = await memory_site.start_manager()
    await memory_site.start_node("gw-1", manager, double=lambda value: 2 * value)

    await memory_site.publish(body, message_id="bad")

    outcome, error = await memory_site.failure("bad")
    assert outcome == "refused"
    assert words in error
    assert (await memory_site.final("bad"))["status"] == "refused"
    assert manager.manager.figures.stats.requests_refused == {reason: 1}
    await _still_works(memory_site)


@pytest.mark.parametrize(
    ("body", "request_id"),
    [
        (_request(id="order-7", target_actions=7), "order-7"),
        (_request(id="order-7", message_data={"k": 1}), "order-7"),
        (_request(id="order-7", message_data='"' + "x" * 3_000_000 + '"'), "order-7"),
        (_request(id=7), "7"),
    ],
)
async def test_a_refused_request_of_another_make_is_named_as_its_body_says(
    memory_site: Site, body: bytes, request_id: str
) -> None:
    await memory_site.start_manager()

    await memory_site.publish(body, message_id="")

    assert (await memory_site.failure(request_id))[0] == "refused"
    assert (await memory_site.final(request_id))["id"] == request_id


async def test_an_action_that_nobody_ever_offered_is_refused_at_once(site: Site) -> None:
    manager = await site.start_manager()
    await site.start_node("gw-1", manager, double=lambda value: 2 * value)

    outcome, error = await site.failure(await site.request("dubble"))

    assert outcome == "refused"
    assert "plant.dubble" in error
    assert manager.manager.figures.stats.requests_refused == {"unknown_action": 1}


async def test_a_plan_in_a_header_that_is_none_is_refused(memory_site: Site) -> None:
    await memory_site.start_manager()

    values: list[HeaderValue] = ["{", 7, '{"name": "x", "steps": []}', "[" * 3000]
    for number, value in enumerate(values):
        await memory_site.publish(_request(id=f"bad-{number}"), message_id="", headers={sapparchi.PLAN: value})
        assert (await memory_site.failure(f"bad-{number}"))[0] == "refused"


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        (b"{", "malformed"),
        (b'{"actionTo": "x", "requestID": "nobody.0.1.1", "messageData": "{"}', "malformed"),
        (b'{"actionTo": "x", "requestID": "made up", "messageData": "1"}', "foreign"),
        (b'{"actionTo": "x", "requestID": "nobody.0.1.1", "messageData": "1"}', "unknown"),
    ],
)
async def test_an_answer_that_means_nothing_changes_nothing_and_is_counted(
    memory_site: Site, body: bytes, verdict: str
) -> None:
    manager = await memory_site.start_manager()
    await memory_site.start_node("gw-1", manager, double=lambda value: 2 * value)

    answer = Publication(message=Message(body=body), exchange="amq.topic", key=topology.STEP_RESULTS, mandatory=False)
    await memory_site.broker.publish(answer)

    await eventually(lambda: manager.manager.figures.stats.step_results == {verdict: 1})
    await _still_works(memory_site)


async def test_a_second_answer_and_one_of_another_attempt_change_nothing(site: Site) -> None:
    manager = await site.start_manager()
    node = await site.start_node("gw-1", manager, double=lambda value: 2 * value)
    task_id = await site.request("double", data=21)
    assert await site.result(task_id) == 42

    await node.answer(node.received[0], 42)
    await node.answer(f"{task_id}.0.7.7", 43)

    results = manager.manager.figures.stats.step_results
    await eventually(lambda: results == {"taken": 1, "double": 1, "late": 1})
    assert await _kept(manager, task_id) == b"42"


async def test_an_answer_that_is_no_json_fails_the_attempt_and_it_is_tried_again(memory_site: Site) -> None:
    manager = await memory_site.start_manager()
    node = await memory_site.start_node("gw-1", manager, double=lambda value: 2 * value)
    slow = await memory_site.start_node("gw-2", manager, other=_never)
    task_id = await memory_site.request("other")
    await eventually(lambda: bool(slow.received))

    await node.answer_with("{", slow.received[0])

    await eventually(lambda: len(slow.received) == 2)
    rows = await steps_of(manager, task_id)
    assert "cannot be read" in (rows["other"].attempts[0].error or "")
    assert manager.manager.figures.stats.step_results == {"malformed": 1}


async def test_who_brings_an_answer_that_is_no_json_to_the_door_hears_so(memory_site: Site) -> None:
    manager = await memory_site.start_manager()
    await memory_site.start_node("gw-1", manager, double=lambda value: 2 * value)

    with pytest.raises(Undecodable, match="data that cannot be read"):
        await manager.manager.take_result(
            Message(body=b'{"actionTo": "x", "requestID": "nobody.0.1.1", "messageData": "{"}')
        )

    assert manager.manager.figures.stats.step_results == {"malformed": 1}
    await _still_works(memory_site)


async def test_a_result_of_almost_the_limit_comes_through_however_long_its_quotes_make_it(memory_site: Site) -> None:
    manager = await memory_site.start_manager()
    quotes = '"' * 500_000  # a megabyte as JSON, and two inside of JSON
    await memory_site.start_node("gw-1", manager, shout=lambda _: quotes)

    assert await memory_site.result(await memory_site.request("shout")) == quotes


@pytest.mark.parametrize("size", [1_100_000, 4_000_000])
async def test_a_result_over_the_limit_ends_its_task_and_says_why(memory_site: Site, size: int) -> None:
    manager = await memory_site.start_manager()
    await memory_site.start_node("gw-1", manager, shout=lambda _: "x" * size)

    outcome, error = await memory_site.failure(await memory_site.request("shout"))

    assert outcome == "refused"
    assert "over the limit of 1,048,576" in error or "over the limit of 2,621,440" in error
    assert manager.manager.figures.stats.step_results == {"malformed": 1}


async def _never(_: Any) -> None:
    await asyncio.Event().wait()


async def _still_works(site: Site) -> None:
    assert await site.result(await site.request("double", data=21)) == 42


async def _kept(manager: Hosted, task_id: str) -> bytes:
    result = await manager.manager.store.result(task_id)  # type: ignore[arg-type]
    assert result is not None
    return result.body
