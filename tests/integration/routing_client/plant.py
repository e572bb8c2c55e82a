"""A plant whose work is routed: an app, its worker, and a manager; in the words of the tests."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from canoa import Canoa
from canoa.manager.hosting import Hosted, hosting

if TYPE_CHECKING:
    from pathlib import Path

    from canoa.recorder.desk import Desk

WITHIN_S = 20.0


@dataclass(frozen=True)
class Samples:
    values: list[float]


class Plant:
    """`runs`: what ran, in order. `broken`: as long as it is set, `report` fails. `gate`: what `hold` waits for."""

    def __init__(self, broker_url: str, folder: Path) -> None:
        self.app = Canoa("plant", broker=broker_url)
        self.runs: list[str] = []
        self.broken = asyncio.Event()
        self.gate = asyncio.Event()
        self.held = asyncio.Event()
        self.store_url = f"sqlite:///{folder}/canoa.db"
        self._stack = AsyncExitStack()
        self.hosted: Hosted
        self.fetch = self.app.action(name="fetch")(self._fetch)
        self.total = self.app.action(name="total")(self._total)
        self.report = self.app.action(name="report", retry=0)(self._report)
        self.hold = self.app.action(name="hold", timeout=None)(self._hold)
        self.plan = self.app.plan("power-factor")
        data = self.plan.step(self.fetch, url=self.plan.input["url"])
        total = self.plan.step(self.total, data)
        self.plan.step(self.report, total, data["values"])

    async def _fetch(self, url: str) -> Samples:
        self.runs.append("fetch")
        return Samples([float(len(url)), 2.0])

    async def _total(self, data: Samples) -> float:
        self.runs.append("total")
        return sum(data.values)

    async def _report(self, total: float, values: list[float]) -> str:
        self.runs.append("report")
        if self.broken.is_set():
            raise ValueError("no paper")
        return f"{total:g} of {len(values)}"

    async def _hold(self) -> str:
        self.held.set()
        await self.gate.wait()
        return "held"

    @property
    def desk(self) -> Desk:
        return self.hosted.desk

    async def start(self) -> None:
        """Return once a manager routes to the worker."""
        self.hosted = await self._stack.enter_async_context(hosting(self.app, self.store_url))
        worker = await self._stack.enter_async_context(self.app.worker(drain_s=2))
        async with asyncio.timeout(WITHIN_S):
            while not any(each.id == worker.node_id for each in await self.desk.routed.nodes()):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def __aenter__(self) -> Plant:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.gate.set()
        async with asyncio.timeout(WITHIN_S):
            await self.app.aclose()
            await self._stack.aclose()
