"""A worker's answers over HTTP: what ends together goes together, and nobody waits for what was sent before."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from canoa.broker.port import Message
from canoa.errors import BrokerUnreachable, DeliveryUnknown
from canoa.testing.ports import LOOPBACK, free_port
from canoa.wire import bundle, fields
from canoa.worker.uplinks.posting import AT_ONCE, RESULTS, ManagerPosts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from canoa.broker.port import PublishOutcome

WITHIN_S = 10.0


class SlowManager:
    """Has every answer at once, and says yes when it is told to."""

    def __init__(self) -> None:
        self.came: asyncio.Queue[Message] = asyncio.Queue()
        self.may_say_yes = asyncio.Event()

    async def take(self, request: web.Request) -> web.Response:
        self.came.put_nowait(fields.read(await request.read(), request.headers.items()))
        await self.may_say_yes.wait()
        return web.json_response({"taken": True})

    async def next(self) -> Message:
        async with asyncio.timeout(WITHIN_S):
            return await self.came.get()


@asynccontextmanager
async def posting(manager: SlowManager) -> AsyncIterator[ManagerPosts]:
    app = web.Application()
    app.router.add_post(RESULTS, manager.take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, 0).start()
    posts = ManagerPosts([f"http://{LOOPBACK}:{runner.addresses[0][1]}"], node_id="gw-7")
    try:
        yield posts
    finally:
        manager.may_say_yes.set()
        await posts.aclose()
        await runner.cleanup()


@pytest.mark.parametrize("together", [False, True])
async def test_one_answer_after_another_does_not_wait_for_those_before_to_be_written(together: bool) -> None:
    manager, outcomes = SlowManager(), list[object]()
    async with posting(manager) as posts:
        for number in range(8):
            posts.answer(Message(body=b"%d" % number), outcomes.append, together=together)
            assert (await manager.next()).body == b"%d" % number

        assert outcomes == []


async def test_answers_that_end_in_one_turn_go_as_one_and_each_hears_of_it() -> None:
    manager = SlowManager()
    told: asyncio.Queue[PublishOutcome] = asyncio.Queue()
    async with posting(manager) as posts:
        for number in range(50):
            posts.answer(Message(body=b"%d" % number), told.put_nowait, together=True)
        manager.may_say_yes.set()

        came = await manager.next()

        assert [part.body for part in bundle.parts(came)] == [b"%d" % number for number in range(50)]
        async with asyncio.timeout(WITHIN_S):
            assert [await told.get() for _ in range(50)] == [None] * 50


async def test_answers_to_what_came_alone_go_alone() -> None:
    manager, outcomes = SlowManager(), list[object]()
    async with posting(manager) as posts:
        for number in range(5):
            posts.answer(Message(body=b"%d" % number), outcomes.append, together=False)

        assert {(await manager.next()).body for _ in range(5)} == {b"%d" % number for number in range(5)}


@pytest.mark.parametrize("has_begun", [False, True])
async def test_whoever_waits_when_it_closes_hears_so_once_and_so_does_whoever_comes_later(has_begun: bool) -> None:
    manager = SlowManager()
    outcomes: list[PublishOutcome] = []
    async with posting(manager) as posts:
        for number in range(AT_ONCE + 4):  # more than may be under way at once
            posts.answer(Message(body=b"%d" % number), outcomes.append, together=False)
        await asyncio.sleep(0)  # their tasks are made, and have not begun
        if has_begun:
            await manager.next()

        await posts.aclose()
        posts.answer(Message(body=b"late"), outcomes.append, together=False)
        await asyncio.sleep(0)

        assert len(outcomes) == AT_ONCE + 5
        assert {type(each) for each in outcomes} == {BrokerUnreachable, DeliveryUnknown}


async def test_a_manager_that_is_away_is_put_last_once_however_many_find_out() -> None:
    manager = SlowManager()
    manager.may_say_yes.set()
    told: asyncio.Queue[PublishOutcome] = asyncio.Queue()
    async with posting(manager) as there:
        posts = ManagerPosts([f"http://{LOOPBACK}:{free_port()}", *there._urls], node_id="gw-7")
        for number in range(2):
            posts.answer(Message(body=b"%d" % number), told.put_nowait, together=False)

        async with asyncio.timeout(WITHIN_S):
            outcomes = [await told.get() for _ in range(2)]
        await posts.aclose()

    assert outcomes == [None, None]


class Refusing:
    """A door that lets nobody in, or a manager that cannot read the answer."""

    def __init__(self, status: int, kind: str) -> None:
        self._status, self._kind = status, kind

    async def take(self, request: web.Request) -> web.Response:
        await request.read()
        return web.json_response({"error": {"type": self._kind, "message": "no"}}, status=self._status)


@pytest.mark.parametrize(
    ("status", "kind", "is_heard"),
    [
        (400, "Undecodable", True),
        (413, "PayloadTooLarge", True),
        (400, "WrongHost", False),
        (409, "NodeIdTaken", False),
        (502, "", False),
    ],
)
async def test_an_answer_counts_as_told_only_where_a_manager_read_it(status: int, kind: str, is_heard: bool) -> None:
    app = web.Application()
    app.router.add_post(RESULTS, Refusing(status, kind).take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, 0).start()
    posts = ManagerPosts([f"http://{LOOPBACK}:{runner.addresses[0][1]}"], node_id="gw-7")
    told: asyncio.Future[PublishOutcome] = asyncio.get_running_loop().create_future()

    posts.answer(Message(body=b"{}"), told.set_result, together=False)

    outcome = await asyncio.wait_for(told, WITHIN_S)
    assert (outcome is None) == is_heard
    await posts.aclose()
    await runner.cleanup()
