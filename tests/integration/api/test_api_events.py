"""The event stream: what it sends, how it keeps alive, and that it always ends."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.integration.api.world import AUTHORIZED, TOKEN
from tests.integration.pool.pool import until

from canoa.api import sse
from canoa.api.server import serving_api
from canoa.api.stopping import Stopping
from canoa.errors import StoreUnreachable
from canoa.testing.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.api.paper_desk import PaperDesk

    from canoa import Canoa

EVENTS = "/api/v1/events"


class Stream:
    """What came, block by block."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def block(self) -> list[str]:
        block: list[str] = []
        async with asyncio.timeout(10):
            async for line in self._lines:
                if not line:
                    return block
                block.append(line)
        return block

    async def is_over(self) -> bool:
        return await self.block() == []


@asynccontextmanager
async def following(client: httpx.AsyncClient, query: str = "") -> AsyncIterator[Stream]:
    """Once the stream says that it listens."""
    async with client.stream("GET", f"{EVENTS}{query}") as response:
        assert response.status_code == 200, await response.aread()
        stream = Stream(response)
        assert await stream.block() == [": listening"]
        yield stream


async def test_an_event_comes_with_number_kind_and_data(server: httpx.AsyncClient, desk: PaperDesk) -> None:
    async with following(server) as stream:
        desk.tell("accepted", task_id="t1", action="shop.resize")
        desk.tell("progress", task_id="t1", action="shop.resize", progress=0.4, text="line\nbreak")

        assert stream.response.headers["content-type"].startswith("text/event-stream")
        assert (await stream.block())[:2] == ["id: 1", "event: accepted"]
        number, kind, data = await stream.block()

    assert (number, kind) == ("id: 2", "event: progress")
    told = json.loads(data.removeprefix("data: "))
    assert told["progress"] == 0.4
    assert told["text"] == "line\nbreak"
    assert told["at"] == "2025-06-01T12:30:00Z"


async def test_a_kind_cannot_add_fields_to_the_stream(server: httpx.AsyncClient, desk: PaperDesk) -> None:
    async with following(server) as stream:
        desk.tell("ended\ndata: {}\n\nevent: ended", task_id="t1", action="shop.resize")

        number, kind, data = await stream.block()

    assert (number, kind) == ("id: 1", "event: unknown")
    assert json.loads(data.removeprefix("data: "))["kind"] == "ended\ndata: {}\n\nevent: ended"


async def test_filters_reach_the_desk(server: httpx.AsyncClient, desk: PaperDesk) -> None:
    async with following(server, "?task=t1&action=shop.resize&node=gw-7"):
        assert desk.asked == {"task_id": "t1", "action": "shop.resize", "node_id": "gw-7"}


async def test_an_event_of_a_task_says_nothing_of_plans(server: httpx.AsyncClient, desk: PaperDesk) -> None:
    async with following(server) as stream:
        desk.tell("accepted", task_id="t1", action="shop.resize")
        desk.tell("plan_registered", task_id="", action="", plan="power-factor")

        said = [json.loads((await stream.block())[2].removeprefix("data: ")) for _ in range(2)]

    assert "plan" not in said[0]
    assert said[1]["plan"] == "power-factor"


async def test_silence_is_kept_alive(
    server: httpx.AsyncClient, desk: PaperDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE_S", 0.05)
    async with following(server) as stream:
        assert await stream.block() == [": still here"]
        assert await stream.block() == [": still here"]
        desk.tell("accepted", task_id="t1", action="shop.resize")
        while (block := await stream.block()) == [": still here"]:
            pass

    assert block[:2] == ["id: 1", "event: accepted"]


async def test_a_listener_that_leaves_is_forgotten(server: httpx.AsyncClient, desk: PaperDesk) -> None:
    async with following(server), following(server):
        assert len(desk.listeners) == 2

    await until(lambda: not desk.listeners)


async def test_more_listeners_than_allowed_are_told_to_come_later(
    server: httpx.AsyncClient, desk: PaperDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "MAX_LISTENERS", 2)
    async with following(server), following(server):
        answer = await server.get(EVENTS)

        assert (answer.status_code, answer.json()["error"]["type"]) == (429, "TooMany")
        assert answer.headers["retry-after"] == "1"
    await until(lambda: not desk.listeners)
    async with following(server):
        pass


async def test_a_desk_that_cannot_listen_is_an_answer(server: httpx.AsyncClient, desk: PaperDesk) -> None:
    desk.fails_with(StoreUnreachable("no link"))

    assert (await server.get(EVENTS)).status_code == 503


# --- Stopping -------------------------------------------------------------------------------------------------


async def test_streams_and_long_polls_end_when_the_server_stops(app: Canoa, desk: PaperDesk) -> None:
    async with AsyncExitStack() as serving, AsyncExitStack() as calling:
        listener = serving.enter_context(socket.create_server((LOOPBACK, 0)))
        await serving.enter_async_context(serving_api(app, listener, token=TOKEN, desk=desk))
        url = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
        client = await calling.enter_async_context(httpx.AsyncClient(base_url=url, headers=AUTHORIZED, timeout=20))
        task_id = (await client.post("/api/v1/tasks", json={"action": "shop.resize"})).json()["id"]
        polling = asyncio.create_task(client.get(f"/api/v1/tasks/{task_id}/result?wait=60"))
        await desk.waited.wait()
        stream = await calling.enter_async_context(following(client))

        async with asyncio.timeout(5):
            await serving.aclose()

        assert await stream.is_over()
        assert (await polling).status_code == 202
        assert desk.listeners == []


async def test_what_begins_to_wait_while_the_server_stops_does_not_wait() -> None:
    stopping = Stopping()
    stopping.set()

    with pytest.raises(TimeoutError):
        async with stopping.interrupts():
            await asyncio.Event().wait()
