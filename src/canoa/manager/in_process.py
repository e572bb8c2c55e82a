"""A manager in an app's own process: what `app.manager()` gives. It knows the app's store, its plans and its workers.

What runs is in `hosting.py`, as for `canoa up` and `canoa manager`.
"""

from __future__ import annotations

import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from canoa.errors import SettingError, WrongUse
from canoa.logs import get_logger
from canoa.manager.hosting import hosting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from canoa.app import Canoa
    from canoa.manager.hosting import Hosted
    from canoa.recorder.routed_views import NodeView, StoryView
    from canoa.worker.worker import Worker

log = get_logger(__name__)

JOINED_WITHIN_S: Final = 10.0
"""A worker that was there before registers with the manager's first heartbeat, after 2.5 s; others at once."""


@asynccontextmanager
async def managing_here(app: Canoa, store_url: str | None) -> AsyncIterator[LocalManager]:
    """See `Canoa.manager`."""
    if app.is_managed_here:  # or will be: a manager takes a while to start
        raise WrongUse(f"a manager of app {app.name!r} runs in this process already; one is enough")
    if store_url is not None:
        app.use_store(store_url)
    async with AsyncExitStack() as stack:
        app.is_managed_here = True
        stack.callback(setattr, app, "is_managed_here", False)
        url = app.settings.store or _store_of_its_own(app, stack)
        local = LocalManager(app, await stack.enter_async_context(hosting(app, url)))
        await local.begin()
        app.host = local
        try:
            yield local
        finally:
            app.host = None


def _store_of_its_own(app: Canoa, stack: AsyncExitStack) -> str:
    """What the memory broker has dies with this process, and so may what is stored for it."""
    if not app.settings.is_memory:
        raise SettingError(
            "a manager on a real broker keeps what it accepts in a store, and none is named; "
            "give app.manager(store='sqlite:///plant.db'), or set CANOA_STORE"
        )
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="canoa-")))
    return f"sqlite:///{folder}/canoa.db"


class LocalManager:
    """Ready inside `async with app.manager():`."""

    def __init__(self, app: Canoa, hosted: Hosted) -> None:
        self._app = app
        self._hosted = hosted
        self._is_resumed = not app.settings.is_memory  # a real broker has what was accepted before

    async def nodes(self) -> list[NodeView]:
        """All that it knows, from the edge to the cloud: what `canoa nodes` shows."""
        return await self._hosted.desk.routed.nodes()

    async def story(self, task_id: str) -> StoryView:
        """All that happened to a routed task: what `canoa task show` tells. Raises `UnknownTask`, `NotRouted`."""
        return await self._hosted.desk.story(task_id)

    async def wait_failed(self) -> None:
        """Never returns; raises why it can no longer manage."""
        await self._hosted.manager.wait_failed()

    # --- For the app ----------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """The app's plans can be submitted by their names, and the workers that it has can be reached."""
        for plan in self._app.plans.values():
            await self._hosted.manager.put_plan(plan.build())
        for worker in self._app.workers:
            await self.joined(worker)

    async def joined(self, worker: Worker) -> None:
        """Return once work can be routed to it."""
        if worker.settings.join and not await self._hosted.manager.wait_joined(
            worker.node_id, within_s=JOINED_WITHIN_S
        ):
            log.warning("worker_has_not_joined", node_id=worker.node_id, within_s=JOINED_WITHIN_S)
        if not self._is_resumed:
            self._is_resumed = True
            policies = {name: action.policy for name, action in self._app.actions.items()}
            await self._hosted.recorder.acceptor.publish_unfinished({}, policies)
