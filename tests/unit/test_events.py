"""Events reach whoever listens; details are told only while somebody does, here or elsewhere."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from canoa.broker import events as module
from canoa.broker import topology
from canoa.broker.events import Events
from canoa.broker.memory import MemoryBroker
from canoa.broker.memory_hub import MemoryHub
from canoa.clock import as_time
from canoa.wire.event import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

WITHIN_S = 5.0


async def two_programs() -> tuple[Events, Events]:
    hub = MemoryHub()
    both = []
    for _ in range(2):
        broker = MemoryBroker(hub)
        await broker.open()
        await broker.declare(*topology.shared())
        events = Events(broker, is_shared=True, on_progress=lambda _: None)
        await events.consume()
        both.append(events)
    return both[0], both[1]


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not is_so():  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.005)


async def test_one_who_listens_elsewhere_wants_details_for_as_long_as_he_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAY_EVERY_S", 0.02)
    monkeypatch.setattr(module, "WANTED_FOR_S", 0.2)
    ours, theirs = await two_programs()
    assert not ours.are_wanted

    async with aclosing(theirs.listen(task_id="a")) as told:
        first = asyncio.ensure_future(anext(told))
        await until(lambda: ours.are_wanted)
        await asyncio.sleep(0.4)  # twice as long as one word counts
        assert ours.are_wanted
        ours.tell(Event(kind="step_sent", task_id="a", action="x", at=as_time(0)))
        assert (await asyncio.wait_for(first, WITHIN_S)).kind == "step_sent"

    await until(lambda: not ours.are_wanted)


async def test_one_who_listens_here_wants_details() -> None:
    ours, _ = await two_programs()
    async with aclosing(ours.listen()) as told:
        first = asyncio.ensure_future(anext(told))
        await asyncio.sleep(0)
        assert ours.are_wanted
        first.cancel()
        await asyncio.wait([first])
    assert not ours.are_wanted
