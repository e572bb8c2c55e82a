"""Many messages that come to a node as one are run and answered like as many messages, and lost as little."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.contract.broker.inbox import Inbox
from tests.integration import hostile_bundles
from tests.integration.pool.pool import Gate, opened, sample, until
from tests.integration.routed.bare_manager import NODE, asking, managing

from canoa import Canoa, Rate
from canoa.broker import topology
from canoa.broker.port import Binding, Message, Publication, Settlement
from canoa.wire import bundle, sapparchi, task
from canoa.worker import worker as worker_module
from canoa.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from tests.integration.routed.bare_manager import BareManager

    from canoa.broker.port import Broker
    from canoa.testing.pytest_plugin import ProxyFactory

NAMED = WorkerSettings(node_id=NODE)
QUEUE = topology.node_queue_name(NODE)


async def double(number: int) -> int:
    return 2 * number


def doubling(count: int) -> list[Message]:
    return [asking("shop.double", {"number": number}) for number in range(count)]


async def crashed(app: Canoa) -> None:
    """What a node does that dies with one delivery in hand."""
    inbox = Inbox()
    async with opened(app) as victim:
        await victim.consume(QUEUE, inbox, prefetch=1)
        await inbox.take(1)


async def test_every_part_is_answered_once_and_the_answers_come_together(app: Canoa, manager: BareManager) -> None:
    app.action(double)
    async with app.worker_with(NAMED):
        request_ids = await manager.send_together(*doubling(100))
        answers = await manager.answers_together(100)

    assert {each.request_id: each.value for each in answers} == dict(zip(request_ids, range(0, 200, 2), strict=True))
    assert {each.status for each in answers} == {"ok"}
    assert manager.answer_count < 100


async def test_answers_go_to_whoever_sent_the_bundle_and_elsewhere_once_he_is_gone(
    app: Canoa, manager: BareManager
) -> None:
    app.action(double)
    own = topology.answers_queue("m-1")
    inbox = Inbox(Settlement.ACK)
    consumer = await manager.broker.consume(own.name, inbox, prefetch=10, topology=[own])
    async with app.worker_with(NAMED):
        await manager.send_together(*doubling(10), answers=own.name)
        assert sorted(each.value for each in await manager.answers_together(10, inbox)) == [*range(0, 20, 2)]
        assert manager.answer_count == 0

        await consumer.cancel()  # its queue is there for a while
        await manager.send_together(*doubling(10), answers=own.name)
        assert sorted(each.value for each in await manager.answers_together(10)) == [*range(0, 20, 2)]

        await manager.broker.delete_queue(own.name)
        await manager.send_together(*doubling(10), answers=own.name)
        assert sorted(each.value for each in await manager.answers_together(10)) == [*range(0, 20, 2)]
    assert len(inbox.deliveries) < 10


async def test_answers_go_to_no_queue_that_is_not_for_answers(app: Canoa, manager: BareManager) -> None:
    app.action(double)
    async with app.worker_with(NAMED):
        await manager.send_together(*doubling(10), answers=topology.DEAD)

        assert len(await manager.answers_together(10)) == 10
    assert (await manager.broker.depth(topology.DEAD)).messages == 0


async def test_answers_to_single_messages_are_single_and_as_published(app: Canoa, manager: BareManager) -> None:
    app.action(double)
    listening = Inbox()
    await manager.broker.declare(*topology.event_queue("stranger"))
    await manager.broker.declare(
        *[
            Binding(exchange=topology.AMQ_TOPIC, queue="canoa.events.stranger", key=key)
            for key in (topology.STEP_RESULTS, topology.STEP_RESULTS_OLD)
        ]
    )
    await manager.broker.consume("canoa.events.stranger", listening, prefetch=100)
    async with app.worker_with(NAMED):
        await manager.send_together(*doubling(5))
        await manager.answers_together(5)
        for message in doubling(5):
            await manager.broker.publish(Publication(message=message, exchange=topology.NODE_UNICAST, key=""))

        assert [each.value for each in await manager.answers(5)] == [0, 2, 4, 6, 8]
    # Strangers hear what is published, and never a bundle.
    assert not any(bundle.is_bundle(each.message) for each in listening.deliveries)


async def test_parts_that_cannot_run_are_refused_alone(app: Canoa, manager: BareManager) -> None:
    app.action(double)
    async with app.worker_with(NAMED) as worker:
        good, bad = doubling(2), Message(body=b"{", message_id="m")
        elsewhere, wrong = asking("shop.other"), asking("shop.double", {"number": "x"})
        await manager.send_together(good[0], bad, elsewhere, wrong, good[1])
        statuses = {each.request_id: each.status for each in await manager.answers_together(4)}

        assert statuses == {
            good[0].message_id: "ok",
            elsewhere.message_id: "returned",
            wrong.message_id: "refused",
            good[1].message_id: "ok",
        }
        assert sample(worker, "canoa_node_messages_refused_total") == 2


@pytest.mark.parametrize("body", hostile_bundles.BODIES.values(), ids=hostile_bundles.BODIES)
async def test_a_bundle_that_cannot_be_read_is_refused_and_counted(
    memory_app: Canoa, memory_manager: BareManager, body: bytes
) -> None:
    memory_app.action(double)
    async with memory_app.worker_with(NAMED) as worker:
        message = Message(body=body, content_type=bundle.CONTENT_TYPE, message_id="hostile")
        await memory_manager.broker.publish(Publication(message=message, key=QUEUE))
        await memory_manager.send("shop.double", {"number": 4})

        assert (await memory_manager.answer()).value == 8
        assert sample(worker, "canoa_node_messages_refused_total") == 1
    assert (await memory_manager.broker.depth(QUEUE)).messages == 0


async def test_a_bundle_that_a_node_died_with_is_split_and_every_part_is_answered_once(
    app: Canoa, manager: BareManager
) -> None:
    app.action(double)
    async with app.worker_with(NAMED):
        pass
    request_ids = await manager.send_together(*doubling(20))
    await crashed(app)

    async with app.worker_with(NAMED):
        answers = await manager.answers_together(20)

    assert sorted(each.request_id for each in answers) == sorted(request_ids)
    assert {each.status for each in answers} == {"ok"}
    assert manager.answer_count == 20  # they came as messages of their own, and so are their answers


async def test_of_a_bundle_that_a_node_died_with_once_too_often_the_suspect_is_poison_and_its_neighbour_runs(
    app: Canoa, manager: BareManager
) -> None:
    gate = Gate()
    app.action(name="held")(gate.hold)
    app.action(double)
    async with app.worker_with(NAMED):
        pass
    guilty = asking("shop.held", headers={task.CRASHES: 2, sapparchi.SUSPECT: True})
    [neighbour] = doubling(1)
    await manager.send_together(guilty, neighbour)
    await crashed(app)

    async with app.worker_with(NAMED):
        statuses = {each.request_id: each.status for each in await manager.answers_together(2)}

    assert statuses == {guilty.message_id: "poisoned", neighbour.message_id: "ok"}
    assert gate.came == 0


async def test_a_part_that_was_cancelled_is_skipped_and_its_neighbours_run(app: Canoa, manager: BareManager) -> None:
    gate = Gate()
    app.action(name="held")(gate.hold)
    app.action(double)
    settings = WorkerSettings(node_id=NODE, concurrency=1)
    async with app.worker_with(settings):
        held, cancelled, other = asking("shop.held"), *doubling(2)
        await manager.send_together(held, cancelled, other)
        await until(lambda: gate.came == 1)
        await manager.cancel(cancelled.message_id or "")
        await asyncio.sleep(0.2)
        gate.open()
        answers = {each.request_id: each.status for each in await manager.answers_together(3)}

    assert answers == {held.message_id: "ok", cancelled.message_id: "cancelled", other.message_id: "ok"}


async def test_on_drain_what_runs_finishes_and_the_other_parts_are_returned(app: Canoa, manager: BareManager) -> None:
    gate = Gate()
    app.action(name="held")(gate.hold)
    settings = WorkerSettings(node_id=NODE, concurrency=1)
    async with app.worker_with(settings):
        request_ids = await manager.send_together(*[asking("shop.held") for _ in range(5)])
        await until(lambda: gate.came == 1)
        asyncio.get_running_loop().call_later(0.1, gate.open)  # while the worker drains

    statuses = {each.request_id: each.status for each in await manager.answers_together(5)}
    assert statuses == dict(zip(request_ids, ["ok", *["returned"] * 4], strict=True))
    assert (await manager.broker.depth(QUEUE)).messages == 0


async def test_what_cannot_start_for_long_comes_again_by_itself_and_its_bundle_is_acknowledged(
    app: Canoa, manager: BareManager, raw: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "HOLD_S", 0.3)
    monkeypatch.setattr(worker_module, "LET_GO_EVERY_S", 0.1)
    first, gate = Gate(), Gate()
    app.action(name="first")(first.hold)
    app.action(name="held")(gate.hold)
    settings = WorkerSettings(node_id=NODE, concurrency=1)
    async with app.worker_with(settings) as worker:
        await manager.send_together(asking("shop.first"), asking("shop.held"), asking("shop.held"))
        await until(lambda: first.came == 1)
        await asyncio.sleep(1.0)  # long enough for the two others to be sent to the node again
        first.open()
        await manager.answers(1)
        await until(lambda: gate.came == 1)
        assert worker.in_progress == 1
        gate.open()

        # Answered one by one: they came again as messages of their own.
        assert [each.status for each in await manager.answers(2)] == ["ok", "ok"]


@pytest.mark.rabbitmq
async def test_what_cannot_start_for_long_is_not_sent_again_where_its_link_was_lost(
    rabbit_url: str, tcp_proxy: ProxyFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "HOLD_S", 0.3)
    monkeypatch.setattr(worker_module, "LET_GO_EVERY_S", 0.1)
    proxy = await tcp_proxy(rabbit_url)
    beside, app = Canoa("shop", broker=rabbit_url), Canoa("shop", broker=proxy.via(rabbit_url))
    gate, runs = Gate(), 0
    app.action(name="held")(gate.hold)

    @app.action
    async def second() -> None:
        nonlocal runs
        runs += 1

    settings = WorkerSettings(node_id=NODE, concurrency=1)
    async with managing(beside) as manager, app.worker_with(settings) as worker:
        await manager.send_together(asking("shop.held"), asking("shop.second"))
        await gate.has(1)
        proxy.cut()
        proxy.restore()
        await until(lambda: worker._main.waiting >= 2)  # what the broker gives again comes as messages of its own
        await asyncio.sleep(1.0)  # long enough for what waited before to be let go
        gate.open()
        await until(lambda: runs > 0)
        await asyncio.sleep(0.5)

        assert runs == 1


async def test_a_part_under_a_rate_waits_for_its_turn_and_is_answered(app: Canoa, manager: BareManager) -> None:
    app.action(rate=Rate("50/s", scope="worker"))(double)
    async with app.worker_with(NAMED):
        await manager.send_together(*doubling(10))

        assert sorted(each.value for each in await manager.answers_together(10)) == list(range(0, 20, 2))


async def test_a_node_says_that_it_takes_bundles(memory_app: Canoa, memory_manager: BareManager) -> None:
    memory_app.action(double)
    async with memory_app.worker_with(NAMED):
        registered = await memory_manager.registration()

    assert registered.headers[sapparchi.BUNDLES] is True
