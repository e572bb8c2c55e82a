"""A worker answers canaries at its door, however busy it is; one that finds itself deaf recovers, or ends loudly."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.contract.broker.inbox import Inbox
from tests.integration.pool.pool import Gate, opened, sample, until
from tests.integration.queue_thief import stealing, unbound
from tests.integration.routed.bare_manager import NODE, BareManager

from canoa import Canoa
from canoa.broker import topology
from canoa.broker.port import Publication, Settlement
from canoa.errors import NodeDeaf
from canoa.wire import canary, sapparchi
from canoa.wire.sapparchi import NodeMessage
from canoa.worker import proving
from canoa.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from canoa.testing import RabbitNode
    from canoa.testing.pytest_plugin import ProxyFactory
    from canoa.worker.worker import Worker

NAMED = WorkerSettings(node_id=NODE)
ALERT = WorkerSettings(node_id=NODE, prove_after_s=0.3)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proving, "ANSWER_WITHIN_S", 0.5)


def offering_one(app: Canoa) -> None:
    app.action(name="one")(lambda: 1)


async def asked(manager: BareManager, *, reply_to: str | None) -> str:
    """A canary, as managers send it; gives its id."""
    request_id = sapparchi.canary_id(NODE, "cafe")
    message = canary.canary(NODE, request_id, reply_to=reply_to)
    await manager.broker.publish(Publication(message=message, exchange=topology.NODE_UNICAST, key=""))
    return request_id


def is_deaf(worker: Worker) -> bool:
    return sample(worker, "canoa_node_deaf") == 1


# --- Managers' canaries -----------------------------------------------------------------------------------


async def test_a_worker_says_that_it_answers_canaries_and_does_so_where_it_is_asked_to(
    app: Canoa, manager: BareManager
) -> None:
    offering_one(app)
    queue = topology.canary_queue("manager")
    answers = Inbox(Settlement.ACK)
    await manager.broker.consume(queue.name, answers, prefetch=10, topology=[queue])

    async with app.worker_with(NAMED):
        said = await manager.registration()
        request_id = await asked(manager, reply_to=queue.name)

        assert said.headers[sapparchi.CANARIES] is True
        answer = sapparchi.decode((await answers.take_one()).message.body, NodeMessage)
        assert (answer.action_to, answer.request_id) == (sapparchi.CANARY, request_id)
        assert manager.answer_count == 0


@pytest.mark.parametrize("reply_to", [None, "another.programs.queue"])
async def test_a_canary_without_a_managers_queue_is_answered_by_the_way_of_all_answers(
    memory_app: Canoa, memory_manager: BareManager, reply_to: str | None
) -> None:
    offering_one(memory_app)

    async with memory_app.worker_with(NAMED):
        request_id = await asked(memory_manager, reply_to=reply_to)

        assert (await memory_manager.answer()).request_id == request_id


async def test_a_busy_worker_answers_a_canary_before_its_work_ends(app: Canoa, manager: BareManager) -> None:
    gate = Gate()
    app.action(name="hold")(gate.hold)

    async with app.worker_with(WorkerSettings(node_id=NODE, concurrency=1)):
        work = await manager.send("shop.hold")
        await until(lambda: gate.came > 0)
        request_id = await asked(manager, reply_to=None)

        assert (await manager.answer()).request_id == request_id
        gate.open()
        assert (await manager.answer()).request_id == work


async def test_a_worker_says_how_long_it_may_be_cut_off(memory_app: Canoa, memory_manager: BareManager) -> None:
    offering_one(memory_app)

    async with memory_app.worker_with(WorkerSettings(node_id=NODE, grace_s=3600)):
        assert (await memory_manager.registration()).headers[sapparchi.GRACE] == 3600


# --- Its own ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("hurried")
async def test_a_worker_to_which_nothing_comes_proves_itself_without_a_word(
    app: Canoa, manager: BareManager, caplog: pytest.LogCaptureFixture
) -> None:
    offering_one(app)

    async with app.worker_with(ALERT) as worker:
        await asyncio.sleep(1.5)  # several times

        assert not is_deaf(worker)
    assert not _has_logged(caplog, "worker_is_deaf")
    assert not _has_logged(caplog, "worker_is_cut_off")
    assert manager.answer_count == 0


@pytest.mark.rabbitmq
@pytest.mark.usefixtures("hurried")
async def test_a_worker_whose_queue_is_unbound_behind_its_back_says_so_and_recovers(
    rabbit_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Canoa("shop", broker=rabbit_url)
    offering_one(app)
    async with app.worker_with(ALERT) as worker:
        await unbound(rabbit_url, NODE)

        await until(lambda: _has_logged(caplog, "worker_hears_again"))
        assert not is_deaf(worker)

        async with opened(app) as broker:
            manager = BareManager(broker)
            await manager.start()
            await manager.send("shop.one")
            assert (await manager.answer()).value == 1
    assert _has_logged(caplog, "worker_is_deaf")
    await app.aclose()


@pytest.mark.rabbitmq
@pytest.mark.usefixtures("hurried")
async def test_a_worker_whose_messages_another_program_takes_says_that_it_is_deaf_and_ends(
    rabbit_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Canoa("shop", broker=rabbit_url)
    offering_one(app)
    async with app.worker_with(ALERT) as worker, stealing(rabbit_url, NODE):
        with pytest.raises(NodeDeaf, match="another program may take from its queue"):
            async with asyncio.timeout(20):
                await worker.wait_failed()

        assert is_deaf(worker)
    assert caplog.text.count("worker_is_deaf") == 2  # before it listened anew, and after
    assert _has_logged(caplog, "worker_cannot_receive")
    await app.aclose()


@pytest.mark.rabbitmq
@pytest.mark.usefixtures("hurried")
async def test_a_worker_that_is_robbed_for_a_while_recovers(rabbit_url: str, caplog: pytest.LogCaptureFixture) -> None:
    app = Canoa("shop", broker=rabbit_url)
    offering_one(app)
    async with app.worker_with(ALERT) as worker:
        async with stealing(rabbit_url, NODE):
            await until(lambda: is_deaf(worker))

        await until(lambda: _has_logged(caplog, "worker_hears_again"))
        assert not is_deaf(worker)
    await app.aclose()


@pytest.mark.rabbitmq
@pytest.mark.usefixtures("hurried")
async def test_a_worker_that_is_cut_off_waits_and_is_not_deaf(
    rabbit_url: str, tcp_proxy: ProxyFactory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = await tcp_proxy(rabbit_url)
    monkeypatch.setenv("CANOA_SUBMIT_TIMEOUT_S", "3")
    app = Canoa("shop", broker=proxy.via(rabbit_url))
    offering_one(app)
    async with app.worker_with(ALERT) as worker:
        proxy.cut()
        await until(lambda: _has_logged(caplog, "worker_is_cut_off"), within_s=30)
        await asyncio.sleep(3)  # longer than a deaf one would last
        assert not is_deaf(worker)

        proxy.restore()
        await until(lambda: _has_logged(caplog, "worker_hears_again"))
    assert not _has_logged(caplog, "worker_is_deaf")
    await app.aclose()


@pytest.mark.rabbitmq
@pytest.mark.usefixtures("hurried")
async def test_a_worker_whose_broker_takes_no_messages_waits_and_is_not_deaf(
    rabbit_node: RabbitNode, rabbit_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANOA_SUBMIT_TIMEOUT_S", "3")
    app = Canoa("shop", broker=rabbit_url)
    offering_one(app)
    async with app.worker_with(ALERT) as worker:
        await asyncio.to_thread(rabbit_node.set_memory_alarm, True)
        try:
            await until(lambda: _has_logged(caplog, "worker_is_cut_off"), within_s=30)
            await asyncio.sleep(3)  # longer than a deaf one would last
            assert not is_deaf(worker)
        finally:
            await asyncio.to_thread(rabbit_node.set_memory_alarm, False)

        await until(lambda: _has_logged(caplog, "worker_hears_again"), within_s=30)
    assert not _has_logged(caplog, "worker_is_deaf")
    await app.aclose()


@pytest.mark.usefixtures("hurried")
async def test_a_worker_whose_hands_are_full_is_not_deaf(
    app: Canoa, manager: BareManager, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    app.action(name="hold")(gate.hold)
    settings = WorkerSettings(node_id=NODE, concurrency=1, prove_after_s=0.3)
    async with app.worker_with(settings):
        for _ in range(5):
            await manager.send("shop.hold")
        await until(lambda: gate.came > 0)
        await asyncio.sleep(3)  # longer than a deaf one would last
        gate.open()
    assert not _has_logged(caplog, "worker_is_deaf")


def _has_logged(caplog: pytest.LogCaptureFixture, event: str) -> bool:
    return event in caplog.text
