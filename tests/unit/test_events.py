"""Events reach whoever listens; details are told only while somebody does, here or elsewhere."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from itertools import permutations
from typing import TYPE_CHECKING

import msgspec

from canoa.broker import events as module
from canoa.broker import topology
from canoa.broker.events import Events
from canoa.broker.memory import MemoryBroker
from canoa.broker.memory_hub import MemoryHub
from canoa.broker.port import Message, Publication
from canoa.clock import as_time
from canoa.wire.event import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

WITHIN_S = 5.0


async def program(hub: MemoryHub) -> Events:
    broker = MemoryBroker(hub)
    await broker.open()
    await broker.declare(*topology.shared())
    events = Events(broker, is_shared=True, on_progress=lambda _: None)
    await events.consume()
    return events


async def two_programs() -> tuple[Events, Events]:
    hub = MemoryHub()
    return await program(hub), await program(hub)


async def told_elsewhere(hub: MemoryHub) -> list[str]:
    """The keys of all that goes through the broker from now on."""
    broker = MemoryBroker(hub)
    await broker.open()
    keys: list[str] = []
    declared = topology.event_queue("onlooker", "#")
    await broker.consume("canoa.events.onlooker", lambda each: keys.append(each.key), prefetch=100, topology=declared)
    return keys


def ended(task_id: str) -> Event:
    return Event(kind="ended", task_id=task_id, action="x", at=as_time(0))


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


async def test_a_lone_program_sends_the_broker_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TELL_AFTER_S", 0)
    hub = MemoryHub()
    ours = await program(hub)
    through_broker = await told_elsewhere(hub)

    ours.tell(ended("a"))
    await asyncio.sleep(0.05)

    assert through_broker == []


async def test_programs_tell_each_other_from_the_moment_that_one_more_is_there() -> None:
    hub = MemoryHub()
    programs = [await program(hub) for _ in range(3)]
    await asyncio.sleep(0.01)  # turns of the loop; nowhere near the seconds between two signs of presence

    for teller, hearer in permutations(programs, 2):
        with hearer.watching("a") as heard:
            teller.tell(ended("a"))
            await asyncio.wait_for(heard.wait(), WITHIN_S)


async def test_any_number_of_made_up_programs_takes_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OTHERS", 3)
    hub = MemoryHub()
    ours = await program(hub)
    broker = MemoryBroker(hub)
    await broker.open()

    for number in range(10):
        message = Message(body=b"", persistent=False, app_id=f"stranger-{number}")
        await broker.publish(
            Publication(message=message, exchange=topology.EVENTS, key=module.PRESENT, mandatory=False)
        )
    await asyncio.sleep(0.01)

    assert list(ours._others) == ["stranger-7", "stranger-8", "stranger-9"]


async def test_one_that_has_gone_is_told_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAY_EVERY_S", 0.02)
    monkeypatch.setattr(module, "PRESENT_FOR_S", 0.2)
    monkeypatch.setattr(module, "TELL_AFTER_S", 0)
    hub = MemoryHub()
    ours, theirs = await program(hub), await program(hub)
    await asyncio.sleep(0.3)  # longer than one sign counts: they say it again and again
    through_broker = await told_elsewhere(hub)
    ours.tell(ended("a"))
    await until(lambda: module.RECORDED in through_broker)

    theirs.stop()
    await asyncio.sleep(0.3)
    del through_broker[:]
    ours.tell(ended("b"))
    await asyncio.sleep(0.05)

    assert module.RECORDED not in through_broker


async def test_one_who_follows_a_node_hears_of_it_and_of_steps_there_alone() -> None:
    ours, _ = await two_programs()
    told = [
        Event(kind="node_left", task_id="", action="", at=as_time(0), node_id="gw-7"),
        Event(kind="step_sent", task_id="a", action="x", at=as_time(0), node_id="gw-7"),
    ]
    others = [ended("a"), Event(kind="node_left", task_id="", action="", at=as_time(0), node_id="gw-8")]

    async with aclosing(ours.listen(node_id="gw-7")) as heard:
        first = asyncio.ensure_future(anext(heard))
        await asyncio.sleep(0)
        for event in (*others, *told):
            ours.tell(event)

        assert [await first, await anext(heard)] == told


async def test_one_who_follows_a_task_or_an_action_hears_nothing_of_nodes_and_plans() -> None:
    ours, _ = await two_programs()
    for wanted in ({"task_id": "a"}, {"action": "x"}):
        async with aclosing(ours.listen(**wanted)) as heard:
            first = asyncio.ensure_future(anext(heard))
            await asyncio.sleep(0)
            ours.tell(Event(kind="node_left", task_id="", action="", at=as_time(0), node_id="gw-7"))
            ours.tell(Event(kind="plan_registered", task_id="", action="", at=as_time(0), plan="p"))
            ours.tell(ended("a"))

            assert await first == ended("a")


def test_events_of_tasks_look_as_they_always_did() -> None:
    assert msgspec.json.encode(ended("a")) == (
        b'{"kind":"ended","task_id":"a","action":"x","at":"1970-01-01T00:00:00Z","outcome":null,"progress":null,'
        b'"text":null,"node_id":null,"attempt":null,"step":null}'
    )
