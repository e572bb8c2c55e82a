"""A node over HTTP that ends while a manager is slow to take its answers keeps them for its next start."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.integration.pool.pool import until
from tests.integration.routed.bare_manager import NODE
from tests.integration.routed.test_asked_again import counter
from tests.integration.routed.test_node_ways import Door

from canoa.testing.ports import LOOPBACK
from canoa.worker import answer_sending
from canoa.worker import worker as worker_module
from canoa.worker.outbox_file import look
from canoa.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from aiohttp import web
    from tests.integration.routed.bare_manager import BareManager
    from tests.integration.routed.test_node_outbox import Counter

    from canoa import Canoa

__all__ = ["counter"]


class SlowDoor(Door):
    """Reads what comes, and says nothing until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_speak = asyncio.Event()

    async def _on_result(self, request: web.Request) -> web.Response:
        said = await super()._on_result(request)
        await self.may_speak.wait()
        return said


async def test_what_a_manager_did_not_take_before_the_end_is_in_the_outbox(
    memory_app: Canoa,
    memory_manager: BareManager,
    counter: Counter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answer_sending, "MOMENT_S", 3600.0)
    monkeypatch.setattr(worker_module, "INTERRUPT_WITHIN_S", 0.1)
    door, file = SlowDoor(), tmp_path / "outbox.db"
    async with door.open():
        settings = WorkerSettings(
            node_id=NODE, http=f"{LOOPBACK}:0", manager_url=door.url, outbox=str(file), drain_s=0.1
        )
        async with memory_app.worker_with(settings):
            await memory_manager.send("shop.count")
            await until(lambda: not door.answers.empty())

        assert (look(file).messages, counter.runs) == (1, 1)
        door.may_speak.set()
