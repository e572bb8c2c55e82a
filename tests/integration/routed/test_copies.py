"""Two copies of one request in one node, brought by different ways: one runs, and nothing that becomes of the other
touches it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.contract.broker.inbox import until_holding
from tests.integration.pool.pool import Gate, sample, until
from tests.integration.routed.bare_manager import NODE, TASK_ID, asking
from tests.integration.routed.paper_uplink import PaperUplink
from tests.integration.routed.test_node_outbox import Counter

from canoa import Canoa, Concurrency
from canoa.broker import topology
from canoa.vocabulary import HTTP, MQTT
from canoa.wire import sapparchi
from canoa.worker import gate as gate_module
from canoa.worker import worker as worker_module
from canoa.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from tests.integration.routed.bare_manager import BareManager

    from canoa.broker.port import Message
    from canoa.worker.worker import Worker

OURS = {sapparchi.OWNER: sapparchi.MANAGER}
FIRST = sapparchi.request_id(TASK_ID, 7, 1, 1)  # of a step that nobody else asks for


@pytest.fixture
def uplinks(monkeypatch: pytest.MonkeyPatch) -> tuple[PaperUplink, PaperUplink]:
    """Beside the queue of the node, which is on the memory broker. Answers go by the first."""
    both = PaperUplink(MQTT), PaperUplink(HTTP)
    monkeypatch.setattr(worker_module, "new_uplinks", lambda *_: both)
    return both


class Blocker:
    """Fills a lane of two, place by place."""

    def __init__(self, app: Canoa) -> None:
        self.gates = [Gate(), Gate()]
        app.action(name="block")(self.block)

    async def block(self, place: int) -> int:
        await self.gates[place].hold()
        return place

    async def fill(self, uplink: PaperUplink) -> None:
        for place, gate in enumerate(self.gates):
            uplink.bring(asking("shop.block", {"place": place}))
            await gate.has(1)

    def end(self) -> None:
        for gate in self.gates:
            gate.open()


def settings(*, drain_s: float = 5.0) -> WorkerSettings:
    return WorkerSettings(node_id=NODE, concurrency=2, drain_s=drain_s)


def counting() -> Message:
    return asking("shop.count", headers=OURS, request_id=FIRST)


async def until_absorbed(worker: Worker, count: int) -> None:
    await until(lambda: sample(worker, "canoa_node_requests_absorbed_total") == count)


async def statuses(uplink: PaperUplink, count: int) -> dict[str, object]:
    """Of so many answers, by request."""
    answers = [await uplink.answer() for _ in range(count)]
    return {each.request_id: each.status for each in answers}


async def test_one_that_is_let_go_leaves_the_one_that_runs_alone(
    memory_app: Canoa,
    memory_manager: BareManager,
    uplinks: tuple[PaperUplink, PaperUplink],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_module, "TUNE_EVERY_S", 0.01)
    monkeypatch.setattr(worker_module, "LET_GO_EVERY_S", 0.0)
    counter, blocker = Counter(memory_app), Blocker(memory_app)
    async with memory_app.worker_with(settings()) as worker:
        await blocker.fill(uplinks[0])
        uplinks[0].bring(counting())
        await memory_manager.send_together(counting(), asking("shop.count"))
        blocker.gates[0].open()
        await counter.gate.has(1)
        monkeypatch.setattr(worker_module, "HOLD_S", 0.0)  # whatever waits in a bundle waits for too long

        await until_absorbed(worker, 1)
        blocker.end()
        counter.gate.open()
        ended = await statuses(uplinks[0], 4)
        await until_holding(memory_manager.broker, topology.node_queue_name(NODE), 0)

    assert ended[FIRST] == "ok"
    assert counter.runs == 2  # with the other request
    assert uplinks[0].answers.empty()


async def test_one_that_waits_for_its_place_for_too_long_leaves_the_one_that_has_it_alone(
    memory_app: Canoa,
    memory_manager: BareManager,
    uplinks: tuple[PaperUplink, PaperUplink],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gate_module, "HOLD_S", 0.1)
    gate, runs = Gate(), 0

    @memory_app.action(concurrency=Concurrency("all", limit=1))
    async def count() -> int:
        nonlocal runs
        runs += 1
        await gate.hold()
        return runs

    async with memory_app.worker_with(settings()) as worker:
        uplinks[0].bring(counting())
        await memory_manager.send("shop.count", headers=OURS, request_id=FIRST)
        await until_absorbed(worker, 1)
        gate.open()

        ended = await statuses(uplinks[0], 1)

    assert (ended, runs) == ({FIRST: "ok"}, 1)
    assert uplinks[0].answers.empty()


async def test_one_that_a_leaving_node_has_not_begun_says_nothing_of_the_one_that_runs(
    memory_app: Canoa, memory_manager: BareManager, uplinks: tuple[PaperUplink, PaperUplink]
) -> None:
    counter, blocker = Counter(memory_app), Blocker(memory_app)
    async with memory_app.worker_with(settings()) as worker:
        await blocker.fill(uplinks[0])
        uplinks[0].bring(counting())
        uplinks[1].bring(counting())
        blocker.gates[0].open()
        await counter.gate.has(1)
        assert (await uplinks[0].answer()).action.endswith("shop.block")
        leaving = asyncio.create_task(worker.stop())

        await until(lambda: uplinks[0].has_left)
        await until(lambda: worker_holds_nothing_unstarted(worker))
        blocker.end()
        counter.gate.open()
        ended = await statuses(uplinks[0], 2)
        assert await leaving  # nothing was interrupted

    assert ended[FIRST] == "ok"
    assert counter.runs == 1
    assert uplinks[0].answers.empty()


def worker_holds_nothing_unstarted(worker: Worker) -> bool:
    return not worker._main.waiting


async def test_who_asks_again_for_what_was_called_off_is_told_so_once(
    memory_app: Canoa, memory_manager: BareManager, uplinks: tuple[PaperUplink, PaperUplink]
) -> None:
    counter = Counter(memory_app)
    async with memory_app.worker_with(settings()):
        uplinks[0].bring(counting())
        await counter.gate.has(1)
        await memory_manager.cancel(FIRST)
        first = await uplinks[0].answer()

        asked_again = uplinks[1].bring(counting())
        again = await uplinks[0].answer()
        await until(lambda: asked_again.is_settled)

    assert [(each.request_id, each.status) for each in (first, again)] == [(FIRST, "cancelled")] * 2
    assert counter.runs == 1
    assert uplinks[0].answers.empty()
