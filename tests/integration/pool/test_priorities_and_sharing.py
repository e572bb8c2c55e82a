"""Which task runs next, and where: priorities, and several workers at one queue."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.pool.pool import Gate, sample, until

from canoa import ActionDefinitionError, Canoa
from canoa.errors import BrokerRefusedOperation, SettingError


async def test_higher_priorities_run_first_and_equal_ones_in_order(app: Canoa) -> None:
    ran: list[str] = []

    @app.action(priorities=5)
    async def note(name: str) -> None:
        ran.append(name)
        await asyncio.sleep(0)

    async with app.worker():
        pass
    for name, priority in [("a", None), ("b", 1), ("c", 5), ("d", 0), ("e", 5), ("f", 1)]:
        await note.using(result="none", priority=priority).submit(name)

    async with app.worker(concurrency=1):
        await until(lambda: len(ran) == 6)

    assert ran == ["c", "e", "b", "f", "a", "d"]


@pytest.mark.parametrize("priority", [-1, 6, 2**40, "high", True, 1.5])
async def test_a_priority_the_action_does_not_keep_is_refused(memory_app: Canoa, priority: int) -> None:
    @memory_app.action(priorities=5)
    async def note(name: str) -> None: ...

    with pytest.raises(SettingError, match=r"priority=.*: shop.note keeps 0 to 5 apart"):
        await note.using(priority=priority).submit("a")


@pytest.mark.parametrize(("priorities", "quorum"), [(0, False), (11, False), (5, True)])
def test_priorities_that_no_queue_can_keep_are_refused(priorities: int, quorum: bool) -> None:
    with pytest.raises(ActionDefinitionError, match=f"priorities={priorities}: use 1 to 10, and not together"):
        Canoa("shop", broker="memory://").action(priorities=priorities, quorum=quorum)


async def test_a_queue_that_exists_with_other_priorities_is_refused_at_the_start(app: Canoa) -> None:
    app.action(name="note", priorities=5)(lambda: None)
    async with app.worker():
        changed = Canoa("shop", broker=app.settings.broker)
        changed._hub = app._hub
        changed.action(name="note", priorities=7)(lambda: None)

        with pytest.raises(BrokerRefusedOperation, match=r"canoa\.action\.shop\.note"):
            async with changed.worker():
                pass


async def test_several_workers_share_a_queue(app: Canoa) -> None:
    gate = Gate()

    @app.action
    async def held(number: int) -> int:
        await gate.hold()
        return number

    async with app.worker(concurrency=2) as one, app.worker(concurrency=2) as other:
        handles = await held.submit_many(range(8))
        await gate.has(4)  # two each at once
        assert (one.in_progress, other.in_progress) == (2, 2)
        gate.open()
        results = [await handle.result(10) for handle in handles]

        counted = {"action": "shop.held", "layer": "CLOUD", "outcome": "ok"}
        shares = [sample(worker, "canoa_actions_total", **counted) for worker in (one, other)]
    assert results == list(range(8))
    assert sum(shares) == 8
    assert min(shares) >= 2


async def test_a_slow_action_does_not_hold_up_another_one(memory_app: Canoa) -> None:
    gate = Gate()

    @memory_app.action
    async def slow(number: int) -> None:
        await gate.hold()

    @memory_app.action
    async def quick() -> str:
        return "quick"

    async with memory_app.worker(concurrency=10):
        await slow.using(result="none").submit_many(range(9))
        await gate.has(9)

        assert await quick.call() == "quick"
        gate.open()
