"""Bundles between managers, nodes and callers: what comes in them counts like what comes alone, and no stranger sees
one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.integration import hostile_bundles
from tests.integration.dispatch.site import eventually

from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.urn import ACTION_PREFIX
from canoa.wire import bundle, sapparchi
from canoa.wire.ids import new_task_id
from canoa.wire.sapparchi import NodeMessage, TaskRequest

if TYPE_CHECKING:
    from tests.integration.dispatch.site import Site

    from canoa.manager.hosting import Hosted

WITHIN_S = 20.0


def request(site: Site, action: str, data: Any, request_id: str = "") -> Message:
    body = TaskRequest(
        id=request_id or new_task_id(),
        target_actions=[f"{ACTION_PREFIX}plant.{action}"],
        message_data=msgspec.json.encode(data).decode(),
    )
    return Message(body=sapparchi.encode(body), message_id=body.id, reply_to=site.reply_to)


async def together(site: Site, *messages: Message, queue: str = topology.TASK_REQUESTS) -> list[str]:
    [(message, _)] = bundle.packed(messages)
    await site.broker.publish(Publication(message=message, key=queue))
    return [each.message_id or "" for each in messages]


def answer(request_id: str, said: Any) -> Message:
    body = NodeMessage(action_to=ACTION_PREFIX + "plant.any", request_id=request_id, message_data=f"{said}")
    return Message(body=sapparchi.encode(body), message_id=request_id)


async def never(_: Any) -> None:
    await asyncio.Event().wait()


async def test_every_request_of_a_bundle_is_a_task_and_strangers_see_single_messages(site: Site) -> None:
    manager = await site.start_manager()
    await site.start_node("gw-1", manager, double=lambda value: 2 * value)  # it would answer a bundle with an error

    task_ids = await together(site, *(request(site, "double", number) for number in range(50)))

    assert [await site.result(task_id) for task_id in task_ids] == list(range(0, 100, 2))
    assert [(await site.final(task_id))["requestID"] for task_id in task_ids] == task_ids
    heard = [future.result() for future in (*site.replies.values(), *site.finals.values())]
    assert not any(bundle.is_bundle(each) for each in heard)


async def test_one_bad_request_of_a_bundle_is_refused_alone(site: Site) -> None:
    manager = await site.start_manager()
    await site.start_node("gw-1", manager, double=lambda value: 2 * value)
    bad = Message(body=b'{"id":"bad"}', message_id="bad", reply_to=site.reply_to)

    first, _, last = await together(site, request(site, "double", 1), bad, request(site, "double", 2))

    assert [await site.result(first), await site.result(last)] == [2, 4]
    assert (await site.failure("bad"))[0] == "refused"
    assert manager.manager.figures.stats.requests_refused == {"plan": 1}
    assert (await site.broker.depth(topology.TASK_REQUESTS)).messages == 0


async def test_every_answer_of_a_bundle_counts_once_and_late_and_foreign_ones_not_at_all(site: Site) -> None:
    manager = await site.start_manager()
    node = await site.start_node("gw-1", manager, slow=never)
    first, second = await together(site, request(site, "slow", 1), request(site, "slow", 2))
    await eventually(lambda: len(node.received) == 2)
    of_task = {request_id.partition(".")[0]: request_id for request_id in node.received}

    answers = [
        answer(of_task[first], 10),
        answer("who.asked", 0),
        answer(of_task[first], 11),
        answer(of_task[second], 20),
    ]
    await together(site, *answers, queue=topology.STEP_RESULTS)

    assert [await site.result(first), await site.result(second)] == [10, 20]
    stats = manager.manager.figures.stats
    await eventually(lambda: stats.step_results.total() == 4)
    assert (stats.step_results["taken"], stats.step_results["foreign"]) == (2, 1)


async def test_a_bundle_that_was_written_and_not_acknowledged_changes_nothing_when_it_comes_again(site: Site) -> None:
    """As after a manager that is killed in between."""
    manager = await site.start_manager()
    node = await site.start_node("gw-1", manager, double=lambda value: 2 * value)
    requests = [request(site, "double", number) for number in range(10)]
    task_ids = await together(site, *requests)
    assert [await site.result(task_id) for task_id in task_ids] == list(range(0, 20, 2))

    await together(site, *requests)
    await together(site, *(answer(each, 99) for each in node.received), queue=topology.STEP_RESULTS)

    stats = manager.manager.figures.stats
    await eventually(lambda: stats.step_results.total() == 20)
    assert stats.step_results["taken"] == 10
    assert len(node.received) == 10
    assert [await site.result(task_id) for task_id in task_ids] == list(range(0, 20, 2))


@pytest.mark.parametrize("body", hostile_bundles.BODIES.values(), ids=hostile_bundles.BODIES)
@pytest.mark.parametrize("queue", [topology.TASK_REQUESTS, topology.STEP_RESULTS])
async def test_a_bundle_that_cannot_be_read_is_refused_and_counted(memory_site: Site, queue: str, body: bytes) -> None:
    manager = await memory_site.start_manager()
    await memory_site.start_node("gw-1", manager, double=lambda value: 2 * value)
    message = Message(body=body, content_type=bundle.CONTENT_TYPE, message_id="hostile")

    await memory_site.broker.publish(Publication(message=message, key=queue))

    stats = manager.manager.figures.stats
    counted = stats.requests_refused if queue == topology.TASK_REQUESTS else stats.step_results
    await eventually(lambda: counted.total() == 1)
    assert set(counted) <= {"malformed", "too_large"}
    assert await memory_site.result(await memory_site.request("double", data=4)) == 8
    assert (await memory_site.broker.depth(queue)).messages == 0


async def test_steps_of_a_bundle_for_a_node_without_a_queue_go_to_another_one(site: Site) -> None:
    manager = await site.start_manager()
    gone = await _canoa_node(site, manager, "gw-gone")
    await site.broker.delete_queue(topology.node_queue_name(gone))

    requests = [request(site, "double", number) for number in range(20)]
    await together(site, *requests)
    await site.start_node("gw-2", manager, double=lambda value: 2 * value)

    assert [await site.result(each.message_id or "") for each in requests] == list(range(0, 40, 2))


async def _canoa_node(site: Site, manager: Hosted, node_id: str) -> str:
    """One that says that it takes bundles, and never does."""
    await site.broker.declare(*topology.node_queue(node_id))
    said = sapparchi.Registration(node_id=node_id, actions=[f"{ACTION_PREFIX}plant.double"])
    message = Message(body=sapparchi.encode(said), headers={sapparchi.BUNDLES: True})
    await site.broker.publish(
        Publication(message=message, exchange=topology.AMQ_TOPIC, key=topology.NODES_REGISTER, mandatory=False)
    )
    rows = manager.manager.nodes.catalogue.rows
    await eventually(lambda: any(row.node_id == node_id and row.takes_bundles for row in rows.values()))
    return node_id
