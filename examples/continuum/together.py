"""Everything in one process: a memory broker, a manager and three workers. Nothing else is needed to try it."""

from __future__ import annotations

import asyncio
import importlib
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from canoa import Canoa
from canoa.cli import story as telling
from canoa.manager.hosting import hosting
from canoa.worker.settings import WorkerSettings
from examples.continuum.plan import app, plan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from canoa.recorder.desk import Desk
    from examples.continuum.nodes import Node


class Together:
    """A manager whose desk knows all about its nodes."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def joined(self, nodes: Sequence[Node]) -> None:
        """Until the manager knows these to be there, and no others."""
        wanted = {node.name for node in nodes}
        async with asyncio.timeout(30):
            while await self._here() != wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.02)  # the manager learns it by itself

    async def _here(self) -> set[str]:
        return {each.id for each in await self._desk.routed.nodes() if each.state == "here"}

    async def told(self, url: str) -> str:
        handle = await plan.submit(url=url)
        result = await handle.result(30)
        return "\n".join([*telling.lines(await self._desk.story(handle.id)), "", result])


@asynccontextmanager
async def manager_and(nodes: Sequence[Node], folder: Path) -> AsyncIterator[Together]:
    home = Canoa("continuum", broker="memory://")
    app.share(home)
    async with AsyncExitStack() as stack:
        hosted = await stack.enter_async_context(hosting(home, f"sqlite:///{folder}/canoa.db"))
        await stack.enter_async_context(app)
        for node in nodes:
            its_app: Canoa = importlib.import_module(f"examples.continuum.{node.module}").app
            its_app.share(home)
            settings = WorkerSettings(layer=node.layer, site=node.site, node_id=node.name)
            await stack.enter_async_context(its_app.worker_with(settings))
        yield Together(hosted.desk)
