"""A routed message that may have ended its node is counted, then runs alone; only then it can be poison.

A node with a name of its own finds its queue again after a crash, and what was in its hands with it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from tests.contract.broker.inbox import Inbox, until_holding
from tests.integration.pool.pool import Gate, opened, taken
from tests.integration.routed.bare_manager import NODE

from canoa.broker import topology
from canoa.broker.port import Publication
from canoa.wire import sapparchi, task
from canoa.worker import offer as offer_module
from canoa.worker.settings import WorkerSettings

if TYPE_CHECKING:
    import pytest
    from tests.integration.routed.bare_manager import BareManager

    from canoa import Canoa
    from canoa.broker.port import Broker

NAMED = WorkerSettings(node_id=NODE)
QUEUE = topology.node_queue_name(NODE)


async def crashed(app: Canoa) -> None:
    """What a node does that dies with one message in hand."""
    inbox = Inbox()
    async with opened(app) as victim:
        await victim.consume(QUEUE, inbox, prefetch=1)
        await inbox.take(1)


async def has_crashed(raw: Broker, crashes: int, *, as_suspect: bool) -> None:
    """The message that waits, as it would be after so many crashes."""
    (delivery,) = await taken(raw, QUEUE, 1)
    message = task.again(delivery.message, crashes=crashes)
    headers = {**message.headers, **({sapparchi.SUSPECT: True} if as_suspect else {})}
    await raw.publish(Publication(message=msgspec.structs.replace(message, headers=headers), key=QUEUE))


async def test_redelivered_it_runs_again_and_is_answered_once(app: Canoa, manager: BareManager) -> None:
    app.action(name="one")(lambda: 1)
    async with app.worker_with(NAMED):
        pass
    await manager.send("shop.one")
    await crashed(app)

    async with app.worker_with(NAMED):
        assert (await manager.answer()).value == 1
    assert manager.answer_count == 1


async def test_redelivered_again_it_runs_alone(app: Canoa, manager: BareManager, raw: Broker) -> None:
    gate, others = Gate(), Gate()
    app.action(name="held")(gate.hold)
    app.action(name="other")(others.hold)
    async with app.worker_with(NAMED):
        pass
    await manager.send("shop.held")
    await has_crashed(raw, 1, as_suspect=False)
    await crashed(app)

    async with app.worker_with(NAMED) as worker:
        await gate.has(1)
        await manager.send("shop.other")
        await until_holding(raw, QUEUE, 0)
        assert worker.in_progress == 0  # the lanes stand still while it runs
        assert others.came == 0
        gate.open()
        others.open()

        assert [each.status for each in await manager.answers(2)] == ["ok", "ok"]


async def test_alone_and_once_too_often_it_is_poison(app: Canoa, manager: BareManager, raw: Broker) -> None:
    gate = Gate()
    app.action(name="held")(gate.hold)
    async with app.worker_with(NAMED):
        pass
    await manager.send("shop.held")
    await has_crashed(raw, 2, as_suspect=True)
    await crashed(app)

    async with app.worker_with(NAMED):
        answered = await manager.answer()

    assert (answered.status, answered.value) == ("poisoned", {"error": "it ended its worker's process 3 times"})
    assert gate.came == 0


async def test_two_suspects_take_turns(app: Canoa, manager: BareManager) -> None:
    alone = 0

    @app.action
    async def held() -> int:
        nonlocal alone
        alone += 1
        await asyncio.sleep(0.05)
        together, alone = alone, alone - 1
        return together

    async with app.worker_with(NAMED):
        for _ in range(2):
            await manager.send("shop.held", headers={task.CRASHES: 2, sapparchi.SUSPECT: True})

        assert [each.value for each in await manager.answers(2)] == [1, 1]


async def test_a_suspect_that_waits_for_another_one_again_and_again_is_held_once(
    memory_app: Canoa, memory_manager: BareManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offer_module, "POSTPONED_S", 0.1)
    gate = Gate()
    memory_app.action(name="held")(gate.hold)
    async with memory_app.worker_with(NAMED) as worker:
        for _ in range(2):
            await memory_manager.send("shop.held", headers={task.CRASHES: 2, sapparchi.SUSPECT: True})
        await gate.has(1)
        await asyncio.sleep(1.0)  # the other one comes and goes several times

        assert len(worker._suspects._postponed) <= 2
        gate.open()
        assert [each.status for each in await memory_manager.answers(2)] == ["ok", "ok"]
