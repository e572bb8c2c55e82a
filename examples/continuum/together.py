"""Everything in one process: a memory broker, a manager and three workers. Nothing else is needed to try it."""

from __future__ import annotations

import asyncio
import importlib
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from canoa import Canoa
from canoa.cli import story as telling
from canoa.manager.hosting import hosting
from canoa.worker.settings import WorkerSettings
from examples.continuum.nodes import NODES
from examples.continuum.plan import app, plan
from examples.continuum.sensor import sensor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from canoa.recorder.desk import Desk
    from examples.continuum.nodes import Node


async def story() -> str:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(sensor())
        desk = await stack.enter_async_context(manager_and(NODES, folder))
        await joined(desk, NODES)
        handle = await plan.submit(url=url)
        result = await handle.result(30)
        told = telling.lines(await desk.story(handle.id))
        return "\n".join([*told, "", result])


@asynccontextmanager
async def manager_and(nodes: Sequence[Node], folder: Path) -> AsyncIterator[Desk]:
    """A manager and these nodes; its desk knows all about them."""
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
        yield hosted.desk


async def joined(desk: Desk, nodes: Sequence[Node]) -> None:
    """Until the manager knows these to be there, and no others."""
    wanted = {node.name for node in nodes}
    async with asyncio.timeout(30):
        while {each.id for each in await desk.routed.nodes() if each.state == "here"} != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # the manager learns it by itself
