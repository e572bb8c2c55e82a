"""Everything in one process: a memory broker, a manager and three workers. Nothing else is needed to try it."""

from __future__ import annotations

import asyncio
import importlib
import tempfile
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from canoa import Canoa
from canoa.cli import story as telling
from canoa.manager.hosting import hosting
from canoa.worker.settings import WorkerSettings
from examples.continuum.nodes import NODES
from examples.continuum.plan import app, plan
from examples.continuum.sensor import sensor

if TYPE_CHECKING:
    from canoa.recorder.desk import Desk


async def story() -> str:
    home = Canoa("continuum", broker="memory://")
    app.share(home)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        url = stack.enter_context(sensor())
        hosted = await stack.enter_async_context(hosting(home, f"sqlite:///{folder}/canoa.db"))
        await stack.enter_async_context(app)
        for node in NODES:
            its_app: Canoa = importlib.import_module(f"examples.continuum.{node.module}").app
            its_app.share(home)
            settings = WorkerSettings(layer=node.layer, site=node.site, node_id=node.name)
            await stack.enter_async_context(its_app.worker_with(settings))
        await _joined(hosted.desk)
        handle = await plan.submit(url=url)
        result = await handle.result(30)
        told = telling.lines(await hosted.desk.story(handle.id))
        return "\n".join([*told, "", result])


async def _joined(desk: Desk) -> None:
    """Until the manager knows all nodes."""
    async with asyncio.timeout(10):
        while len(await desk.routed.nodes()) < len(NODES):  # noqa: ASYNC110  # the manager learns it by itself
            await asyncio.sleep(0.02)
