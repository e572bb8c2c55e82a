"""Where a manager's address is set, a node sees for itself whether the manager is up, and comes back with it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tests.integration.pool.pool import until
from tests.integration.routed.bare_manager import NODE, BareManager

from canoa.errors import SettingError
from canoa.testing import free_port
from canoa.testing.ports import LOOPBACK
from canoa.worker import node
from canoa.worker.health_page import health_page
from canoa.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from canoa import Canoa

UP = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{"status":"UP"}'


class Page:
    """A health page that says what it is told to say."""

    def __init__(self, port: int) -> None:
        self.url = f"http://{LOOPBACK}:{port}"
        self.says = UP
        self.asked: list[bytes] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self.says)
        writer.close()


@asynccontextmanager
async def shown() -> AsyncIterator[Page]:
    page = Page(free_port())
    server = await asyncio.start_server(page.answer, LOOPBACK, int(page.url.rpartition(":")[2]))
    async with server:
        yield page


@pytest.mark.parametrize(
    ("says", "is_up"),
    [
        (UP, True),
        (b'HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\nf\r\n{"status": "UP"}\r\n0\r\n\r\n', True),
        (b'HTTP/1.1 200 OK\r\n\r\n{"status":"DOWN"}', False),
        (b'HTTP/1.1 503 Busy\r\n\r\n{"status":"UP"}', False),
        (b"SSH-2.0", False),
        (b"", False),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 300_000, False),
    ],
)
async def test_only_a_page_that_says_up_is_up(says: bytes, is_up: bool) -> None:
    async with shown() as page:
        page.says = says

        assert await health_page(page.url + "/base/").is_up() is is_up
    assert page.asked[0].startswith(b"GET /base/actuator/health HTTP/1.1\r\nHost: ")


async def test_where_nobody_answers_it_is_down() -> None:
    assert not await health_page(f"http://{LOOPBACK}:{free_port()}").is_up()


@pytest.mark.parametrize("url", ["manager:8420", "ftp://manager", "http://", "http://manager:port"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(SettingError, match=r"manager_url .* is no address; write http://"):
        health_page(url)


async def test_a_node_registers_when_its_manager_is_back(
    memory_app: Canoa, memory_manager: BareManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "POLL_EVERY_S", 0.02)
    memory_app.action(name="one")(lambda: 1)

    async with (
        shown() as page,
        memory_app.worker_with(WorkerSettings(node_id=NODE, manager_url=page.url)),
    ):
        await memory_manager.registration()
        page.says = b"HTTP/1.1 503 Away\r\n\r\n"
        looks = len(page.asked)
        await until(lambda: len(page.asked) > looks + 2)
        assert memory_manager.registration_count == 1
        page.says = UP

        assert (await memory_manager.registration()).body.force_register
