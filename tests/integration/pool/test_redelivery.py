"""A message that may have ended its worker is counted, then runs alone, and only its own crashes make it poison."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.contract.broker.inbox import Inbox, until_holding
from tests.integration.pool.pool import Gate, dead_letter, opened, sample, taken

from canoa import Canoa, Handle, TaskPoisoned
from canoa.broker import topology
from canoa.broker.port import Publication
from canoa.wire import task

if TYPE_CHECKING:
    from canoa.broker.port import Broker

QUEUE = topology.action_queue_name("shop.held")
SUSPECTS = topology.suspect_queue_name("shop.held")


async def crash_holding(app: Canoa, queue: str) -> None:
    """What a worker does that dies with one message in hand."""
    inbox = Inbox()
    async with opened(app) as victim:
        await victim.consume(queue, inbox, prefetch=1)
        await inbox.take(1)


async def has_crashed(raw: Broker, crashes: int, *, to: str) -> None:
    """Move the waiting task to where it would be after so many crashes."""
    (delivery,) = await taken(raw, QUEUE, 1)
    message = task.again(delivery.message, crashes=crashes)
    await raw.publish(Publication(message=message, key=to))


class Held:
    """An app with one action that holds until it is let go, and a task of it that waits for a worker."""

    def __init__(self, app: Canoa, max_crashes: int = 3) -> None:
        self.gate = Gate()
        self.others = Gate()

        @app.action(max_crashes=max_crashes)
        async def held() -> str:
            await self.gate.hold()
            return "survived"

        @app.action
        async def other() -> str:
            await self.others.hold()
            return "other"

        self.action = held
        self.other = other
        self._app = app

    async def submitted(self) -> Handle[str]:
        async with self._app.worker():
            pass
        return await self.action.submit()


async def test_redelivered_once_it_runs_again_in_company(app: Canoa, raw: Broker) -> None:
    held = Held(app)
    handle = await held.submitted()
    await crash_holding(app, QUEUE)

    async with app.worker() as worker:
        await held.gate.has(1)
        beside = await held.other.submit()
        await held.others.has(1)  # not alone
        held.gate.open()
        held.others.open()

        assert await handle.result(10) == "survived"
        assert await beside.result(10) == "other"
        assert sample(worker, "canoa_actions_total", action="shop.held", layer="CLOUD", outcome="ok") == 1
    await until_holding(raw, QUEUE, 0)


async def test_redelivered_again_it_is_a_suspect_and_runs_alone(app: Canoa, raw: Broker) -> None:
    held = Held(app)
    handle = await held.submitted()
    await has_crashed(raw, 1, to=QUEUE)
    await crash_holding(app, QUEUE)

    async with app.worker() as worker:
        await held.gate.has(1)
        later = await held.other.submit()
        await until_holding(raw, topology.action_queue_name("shop.other"), 0)
        assert worker.in_progress == 0  # the lanes stand still while it runs
        assert held.others.came == 0
        held.gate.open()
        held.others.open()

        assert await handle.result(10) == "survived"
        assert await later.result(10) == "other"


async def test_a_suspect_waits_until_its_company_has_left(app: Canoa, raw: Broker) -> None:
    held = Held(app)
    handle = await held.submitted()
    (delivery,) = await taken(raw, QUEUE, 1)

    async with app.worker():
        company = await held.other.submit()
        await held.others.has(1)
        await raw.publish(Publication(message=task.again(delivery.message, crashes=2), key=SUSPECTS))
        await until_holding(raw, SUSPECTS, 0)
        assert held.gate.came == 0
        held.others.open()
        await company.result(10)
        await held.gate.has(1)
        held.gate.open()

        assert await handle.result(10) == "survived"


async def test_a_suspect_that_crashed_alone_too_often_is_poison(app: Canoa, raw: Broker) -> None:
    held = Held(app, max_crashes=3)
    handle = await held.submitted()
    await has_crashed(raw, 2, to=SUSPECTS)
    await crash_holding(app, SUSPECTS)

    async with app.worker() as worker:
        with pytest.raises(TaskPoisoned, match="it ended its worker's process 3 times; it waits among the dead"):
            await handle.result(10)
        letter = await dead_letter(raw)

        assert held.gate.came == 0
        assert letter.message_id == handle.id
        assert letter.headers["canoa-reason"] == "poisoned"
        assert letter.headers["canoa-origin"] == QUEUE
        assert sample(worker, "canoa_actions_total", action="shop.held", layer="CLOUD", outcome="poisoned") == 1
    await until_holding(raw, SUSPECTS, 0)


async def test_a_suspect_below_its_limit_is_counted_and_runs_alone_again(app: Canoa, raw: Broker) -> None:
    held = Held(app, max_crashes=4)
    handle = await held.submitted()
    await has_crashed(raw, 2, to=SUSPECTS)
    await crash_holding(app, SUSPECTS)
    held.gate.open()

    async with app.worker():
        assert await handle.result(10) == "survived"


async def test_with_a_limit_of_one_nothing_ever_runs_twice(app: Canoa, raw: Broker) -> None:
    held = Held(app, max_crashes=1)
    handle = await held.submitted()
    await crash_holding(app, QUEUE)

    async with app.worker():
        with pytest.raises(TaskPoisoned, match="1 times"):
            await handle.result(10)

    assert held.gate.came == 0


async def test_two_suspects_take_turns(memory_app: Canoa, memory_raw: Broker) -> None:
    held = Held(memory_app)
    held.gate.open()
    handles = []
    for _ in range(2):
        handles.append(await held.submitted())
        await has_crashed(memory_raw, 2, to=SUSPECTS)

    async with memory_app.worker() as worker:
        assert [await handle.result(10) for handle in handles] == ["survived"] * 2
        assert worker.in_progress == 0


async def test_other_work_goes_on_after_a_suspect(memory_app: Canoa, memory_raw: Broker) -> None:
    held = Held(memory_app)
    held.gate.open()
    held.others.open()
    handle = await held.submitted()
    await has_crashed(memory_raw, 2, to=SUSPECTS)

    async with memory_app.worker():
        assert await handle.result(10) == "survived"
        assert await held.other.call() == "other"
