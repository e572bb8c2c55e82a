"""A node whose link is cut keeps what it did: answers wait on disk, arrive later, and nothing runs twice for it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tests.contract.broker.inbox import until_holding
from tests.integration.pool.pool import Gate, sample, until
from tests.integration.routed.bare_manager import NODE, TASK_ID, asking

from canoa import Canoa
from canoa.broker import topology
from canoa.broker.port import Publication
from canoa.vocabulary import Drop
from canoa.wire import sapparchi
from canoa.worker import worker as worker_module
from canoa.worker.outbox_file import look
from canoa.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from tests.integration.routed.bare_manager import BareManager

    from canoa.testing import RabbitNode
    from canoa.testing.proxy import TcpProxy
    from canoa.testing.pytest_plugin import ProxyFactory
    from canoa.worker.worker import Worker

QUEUE = topology.node_queue_name(NODE)
OURS = {sapparchi.OWNER: sapparchi.MANAGER}
WITHIN_S = 30.0


@pytest.fixture(params=[pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def app_broker(request: pytest.FixtureRequest) -> str:
    """The link is what these are about."""
    url: str = request.getfixturevalue("rabbit_url")
    return url


@pytest.fixture
async def proxy(tcp_proxy: ProxyFactory, rabbit_url: str) -> TcpProxy:
    """The node's way to the broker; the manager has its own."""
    return await tcp_proxy(rabbit_url)


@pytest.fixture
async def node(proxy: TcpProxy, rabbit_url: str) -> AsyncIterator[Canoa]:
    """The app as the node has it."""
    app = Canoa("shop", broker=proxy.via(rabbit_url))
    yield app
    await app.aclose()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "outbox.db"


class Counter:
    """An action that says how often it ran, and waits where it is told to."""

    def __init__(self, app: Canoa) -> None:
        self.runs = 0
        self.gate = Gate()
        app.action(name="count")(self.count)

    async def count(self) -> int:
        self.runs += 1
        run = self.runs
        await self.gate.hold()
        return run


def settings(
    file: Path, *, drop: Drop = Drop.OLDEST, max_messages: int = 100, always: bool = False, concurrency: int = 50
) -> WorkerSettings:
    return WorkerSettings(
        concurrency=concurrency,
        node_id=NODE,
        outbox=str(file),
        outbox_drop=drop,
        outbox_max_messages=max_messages,
        outbox_always=always,
        drain_s=1.0,
    )


@asynccontextmanager
async def cut_off(proxy: TcpProxy, manager: BareManager) -> AsyncIterator[None]:
    """Inside the block the node has no link, and the broker knows it."""
    proxy.cut()
    await until_deserted(manager)
    try:
        yield
    finally:
        proxy.restore()


async def until_deserted(manager: BareManager) -> None:
    async with asyncio.timeout(WITHIN_S):
        while (await manager.broker.depth(QUEUE)).consumers:  # noqa: ASYNC110  # the broker tells nobody
            await asyncio.sleep(0.01)


async def until_kept(file: Path, count: int) -> None:
    await until(lambda: file.exists() and look(file).messages == count, within_s=WITHIN_S)


async def until_sent(worker: Worker) -> None:
    await until(lambda: sample(worker, "canoa_outbox_messages") == 0, within_s=WITHIN_S)


async def test_what_ended_while_the_link_was_down_is_answered_later_and_ran_once(
    node: Canoa, manager: BareManager, proxy: TcpProxy, file: Path
) -> None:
    counter = Counter(node)
    async with node.worker_with(settings(file)) as worker:
        request_ids = [await manager.send("shop.count") for _ in range(5)]
        await counter.gate.has(5)
        async with cut_off(proxy, manager):
            counter.gate.open()
            await until_kept(file, 5)
            await until(lambda: sample(worker, "canoa_outbox_messages") == 5)  # its writer tells the loop later
            assert sample(worker, "canoa_outbox_bytes") > 0

        answers = await manager.answers(5)
        await until_sent(worker)
        await until(lambda: sample(worker, "canoa_node_requests_absorbed_total") == 5)
        await until_holding(manager.broker, QUEUE, 0)

    assert {each.request_id for each in answers} == set(request_ids)
    assert sorted(each.value for each in answers) == [1, 2, 3, 4, 5]
    assert (counter.runs, manager.answer_count) == (5, 5)


async def test_parts_of_a_bundle_are_kept_and_absorbed_one_by_one(
    node: Canoa, manager: BareManager, proxy: TcpProxy, file: Path
) -> None:
    counter = Counter(node)
    async with node.worker_with(settings(file)) as worker:
        request_ids = await manager.send_together(*(asking("shop.count") for _ in range(10)))
        await counter.gate.has(10)
        async with cut_off(proxy, manager):
            counter.gate.open()
            await until_kept(file, 10)

        answers = await manager.answers_together(10)
        await until_sent(worker)
        await until(lambda: sample(worker, "canoa_node_requests_absorbed_total") == 10)
        await until_holding(manager.broker, QUEUE, 0)

    assert {each.request_id for each in answers} >= set(request_ids)
    assert counter.runs == 10


async def test_one_that_still_runs_when_it_comes_again_is_not_begun_a_second_time(
    node: Canoa, manager: BareManager, proxy: TcpProxy, file: Path
) -> None:
    counter = Counter(node)
    async with node.worker_with(settings(file)) as worker:
        request_id = await manager.send("shop.count")
        await counter.gate.has(1)
        async with cut_off(proxy, manager):
            pass
        await until(lambda: sample(worker, "canoa_node_requests_absorbed_total") == 1, within_s=WITHIN_S)
        counter.gate.open()

        answered = await manager.answer()
    depth = await manager.broker.depth(QUEUE)

    assert (answered.request_id, answered.value, counter.runs) == (request_id, 1, 1)
    assert (depth.messages, manager.answer_count) == (0, 1)  # both deliveries were acknowledged


async def test_an_attempt_that_a_manager_sends_again_gets_the_answer_that_there_is(
    node: Canoa, manager: BareManager, proxy: TcpProxy, file: Path
) -> None:
    counter = Counter(node)
    async with node.worker_with(settings(file)):
        first, second, third = (sapparchi.request_id(TASK_ID, 0, 1, send) for send in (1, 2, 3))
        await manager.send("shop.count", headers=OURS, request_id=first)
        await counter.gate.has(1)
        async with cut_off(proxy, manager):
            counter.gate.open()
            await until_kept(file, 1)
        assert (await manager.answer()).request_id == first

        await manager.send("shop.count", headers=OURS, request_id=second)
        again = await manager.answer()
    async with node.worker_with(settings(file)):  # and after a restart
        await manager.send("shop.count", headers=OURS, request_id=third)
        once_more = await manager.answer()

        assert [(each.request_id, each.value) for each in (again, once_more)] == [(second, 1), (third, 1)]
        assert counter.runs == 1
        next_attempt = sapparchi.request_id(TASK_ID, 0, 2, 4)
        await manager.send("shop.count", headers=OURS, request_id=next_attempt)
        assert (await manager.answer()).value == 2


async def test_a_resent_attempt_that_still_runs_is_answered_under_both_ids(
    memory_app: Canoa, memory_manager: BareManager
) -> None:
    counter = Counter(memory_app)
    first, second = (sapparchi.request_id(TASK_ID, 0, 1, send) for send in (1, 2))
    async with memory_app.worker_with(WorkerSettings(node_id=NODE)) as worker:
        await memory_manager.send("shop.count", headers=OURS, request_id=first)
        await counter.gate.has(1)
        await memory_manager.send("shop.count", headers=OURS, request_id=second)
        await until(lambda: sample(worker, "canoa_node_requests_absorbed_total") == 1)
        counter.gate.open()

        answers = await memory_manager.answers(2)

    assert {each.request_id: each.value for each in answers} == {first: 1, second: 1}
    assert counter.runs == 1


async def test_calling_off_a_resent_attempt_interrupts_the_one_that_runs(
    memory_app: Canoa, memory_manager: BareManager
) -> None:
    counter = Counter(memory_app)
    first, second = (sapparchi.request_id(TASK_ID, 0, 1, send) for send in (1, 2))
    async with memory_app.worker_with(WorkerSettings(node_id=NODE)) as worker:
        await memory_manager.send("shop.count", headers=OURS, request_id=first)
        await counter.gate.has(1)
        await memory_manager.send("shop.count", headers=OURS, request_id=second)
        await until(lambda: sample(worker, "canoa_node_requests_absorbed_total") == 1)
        await memory_manager.cancel(second)

        answers = await memory_manager.answers(2)

    assert {each.request_id: each.status for each in answers} == {first: "cancelled", second: "cancelled"}
    assert counter.runs == 1


async def test_ids_that_only_look_like_a_resent_attempt_are_other_requests(
    memory_app: Canoa, memory_manager: BareManager
) -> None:
    counter = Counter(memory_app)
    counter.gate.open()
    async with memory_app.worker_with(WorkerSettings(node_id=NODE)):
        for name in ("10.0.0.1", "10.0.0.2"):
            await memory_manager.send("shop.count", request_id=name)

        assert sorted(each.value for each in await memory_manager.answers(2)) == [1, 2]


async def test_a_request_that_was_answered_is_acknowledged_when_it_comes_again(
    memory_app: Canoa, memory_manager: BareManager
) -> None:
    counter = Counter(memory_app)
    counter.gate.open()
    async with memory_app.worker_with(WorkerSettings(node_id=NODE)) as worker:
        request_id = await memory_manager.send("shop.count")
        await memory_manager.answer()
        await memory_manager.send("shop.count", request_id=request_id)
        await until(lambda: sample(worker, "canoa_node_requests_absorbed_total") == 1)
        await memory_manager.send("shop.count")

        assert (await memory_manager.answer()).value == 2
    assert memory_manager.answer_count == 2
    assert (await memory_manager.broker.depth(QUEUE)).messages == 0


async def test_copies_that_wait_behind_each_other_run_once(memory_app: Canoa, memory_manager: BareManager) -> None:
    counter = Counter(memory_app)
    async with memory_app.worker_with(WorkerSettings(node_id=NODE, concurrency=1)):
        other = asking("shop.count")
        copy = asking("shop.count")
        await memory_manager.send_together(other, copy, copy, copy)
        await counter.gate.has(1)
        counter.gate.open()

        answers = await memory_manager.answers_together(2)
        await until_holding(memory_manager.broker, QUEUE, 0)

    assert {each.request_id for each in answers} == {other.message_id, copy.message_id}
    assert counter.runs == 2


# --- Over its bound ---------------------------------------------------------------------------------------


async def test_what_was_too_much_is_counted_and_runs_again(
    node: Canoa, manager: BareManager, proxy: TcpProxy, file: Path
) -> None:
    counter = Counter(node)
    async with node.worker_with(settings(file, max_messages=3)) as worker:
        request_ids = [await manager.send("shop.count") for _ in range(5)]
        await counter.gate.has(5)
        async with cut_off(proxy, manager):
            counter.gate.open()
            await until(lambda: sample(worker, "canoa_outbox_dropped_total") == 2, within_s=WITHIN_S)
            await until_kept(file, 3)
            assert look(file).dropped == 2

        await until(lambda: counter.runs == 7, within_s=WITHIN_S)
        answered: set[str] = set()
        while answered != set(request_ids):
            answered.add((await manager.answer()).request_id)


@pytest.mark.parametrize("drop", [Drop.NEWEST, Drop.REFUSE])
async def test_by_policy_it_is_the_newest_that_runs_again(
    node: Canoa, manager: BareManager, proxy: TcpProxy, file: Path, drop: Drop
) -> None:
    counter = Counter(node)
    async with node.worker_with(settings(file, max_messages=1, drop=drop)) as worker:
        request_ids = [await manager.send("shop.count") for _ in range(3)]
        await counter.gate.has(3)
        async with cut_off(proxy, manager):
            counter.gate.open()
            await until(lambda: sample(worker, "canoa_outbox_dropped_total") == 2, within_s=WITHIN_S)

        answered: set[str] = set()
        while answered != set(request_ids):
            answered.add((await manager.answer()).request_id)
    assert look(file).dropped >= 2


# --- A broker under an alarm, which takes no answers ---------------------------------------------------------


@pytest.fixture
async def set_alarm(rabbit_node: RabbitNode) -> AsyncIterator[Callable[[bool], Awaitable[None]]]:
    async def set_alarm(on: bool) -> None:
        await asyncio.to_thread(rabbit_node.set_memory_alarm, on)

    yield set_alarm
    await set_alarm(False)


async def test_while_the_broker_takes_nothing_the_node_works_on_and_keeps_its_answers(
    node: Canoa, manager: BareManager, set_alarm: Callable[[bool], Awaitable[None]], file: Path
) -> None:
    counter = Counter(node)
    async with node.worker_with(settings(file, concurrency=1)) as worker:
        request_ids = [await manager.send("shop.count") for _ in range(20)]
        await counter.gate.has(1)
        await set_alarm(True)
        counter.gate.open()
        await until(lambda: counter.runs == 20, within_s=WITHIN_S)
        await until(lambda: look(file).messages >= 15, within_s=WITHIN_S)
        await set_alarm(False)

        answers = await manager.answers_together(20)
        await until_sent(worker)
        await until_holding(manager.broker, QUEUE, 0)

    assert {each.request_id for each in answers} == set(request_ids)
    assert (counter.runs, manager.answer_count) == (20, 20)


async def test_told_to_refuse_it_takes_no_more_work_than_it_can_keep(
    node: Canoa,
    manager: BareManager,
    set_alarm: Callable[[bool], Awaitable[None]],
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_module, "TUNE_EVERY_S", 3600.0)  # quick actions would be given all of them ahead
    counter = Counter(node)
    refusing = settings(file, concurrency=1, max_messages=1, drop=Drop.REFUSE)
    async with node.worker_with(refusing) as worker:
        request_ids = [await manager.send("shop.count") for _ in range(40)]
        await counter.gate.has(1)
        await set_alarm(True)
        counter.gate.open()
        await until(lambda: sample(worker, "canoa_outbox_dropped_total") >= 1, within_s=WITHIN_S)
        await until(lambda: worker.in_progress == 0)
        assert (await manager.broker.depth(QUEUE)).messages > 0
        assert counter.runs < 40
        await set_alarm(False)

        answers = await manager.answers_together(40)

    assert {each.request_id for each in answers} == set(request_ids)
    assert counter.runs == 40  # each of them once: nothing was given up


# --- Always -------------------------------------------------------------------------------------------------


async def test_always_means_on_disk_before_it_is_sent_and_is_as_good_for_bundles(
    node: Canoa, manager: BareManager, file: Path
) -> None:
    counter = Counter(node)
    counter.gate.open()
    async with node.worker_with(settings(file, always=True)) as worker:
        request_ids = await manager.send_together(*(asking("shop.count") for _ in range(20)))
        answers = await manager.answers_together(20)
        await until_sent(worker)

        assert {each.request_id for each in answers} == set(request_ids)
        seen = look(file)
        assert (seen.messages, seen.remembered, seen.dropped) == (0, 20, 0)
    await until_holding(manager.broker, QUEUE, 0)


async def test_while_the_link_is_up_nothing_is_written(node: Canoa, manager: BareManager, file: Path) -> None:
    counter = Counter(node)
    counter.gate.open()
    async with node.worker_with(settings(file)):
        for _ in range(20):
            await manager.send("shop.count")
        await manager.answers(20)

        seen = look(file)
        assert (seen.messages, seen.remembered) == (0, 0)


# --- Trouble, and leaving ---------------------------------------------------------------------------------


async def test_without_a_file_it_works_as_before(
    node: Canoa, manager: BareManager, proxy: TcpProxy, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    counter = Counter(node)
    async with node.worker_with(settings(tmp_path / "file" / "outbox.db")):
        await manager.send("shop.count")
        await counter.gate.has(1)
        async with cut_off(proxy, manager):
            counter.gate.open()
            await until(lambda: counter.gate.ended == 1)

        assert (await manager.answer()).value == 1


async def test_a_silent_link_is_not_waited_for(node: Canoa, manager: BareManager, proxy: TcpProxy, file: Path) -> None:
    counter = Counter(node)
    async with node.worker_with(settings(file)) as worker:
        await manager.send("shop.count")
        await counter.gate.has(1)
        proxy.stall()
        counter.gate.open()
        await until_kept(file, 1)
        proxy.resume()

        assert (await manager.answer()).value == 1
        await until_sent(worker)
    assert (counter.runs, manager.answer_count) == (1, 1)


async def test_what_is_kept_when_it_leaves_is_sent_by_the_next_start(
    node: Canoa, manager: BareManager, proxy: TcpProxy, file: Path
) -> None:
    counter = Counter(node)
    async with node.worker_with(settings(file)):
        await manager.send("shop.count")
        await counter.gate.has(1)
        proxy.cut()
        counter.gate.open()
    assert look(file).messages == 1
    proxy.restore()

    async with node.worker_with(settings(file)) as worker:
        assert (await manager.answer()).value == 1
        await until_sent(worker)
        await until_holding(manager.broker, QUEUE, 0)
    assert counter.runs == 1


async def test_what_is_given_back_is_not_kept(
    memory_app: Canoa, memory_manager: BareManager, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "INTERRUPT_WITHIN_S", 1.0)
    counter = Counter(memory_app)
    async with memory_app.worker_with(WorkerSettings(node_id=NODE, outbox=str(file), outbox_always=True, drain_s=0.05)):
        await memory_manager.broker.publish(
            Publication(message=asking("shop.count"), exchange=topology.NODE_UNICAST, key="")
        )
        await counter.gate.has(1)

    assert (await memory_manager.answer()).status == "returned"
    assert look(file).remembered == 0
