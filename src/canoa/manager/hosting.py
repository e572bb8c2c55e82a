"""A manager with a recorder beside it, on one store, as one thing that runs: for `canoa up` and `canoa manager`."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from canoa.broker.mqtt_address import mqtt_address
from canoa.execution.health import BreakerSettings
from canoa.execution.step_settings import StepSettings
from canoa.manager.node_settings import NodeSettings
from canoa.manager.service import Manager, ManagerSettings, managing
from canoa.recorder import hosting as recorder_hosting
from canoa.recorder import system

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from canoa.app import Canoa
    from canoa.recorder.desk import Desk
    from canoa.recorder.service import Recorder


class Hosted(NamedTuple):
    recorder: Recorder
    desk: Desk
    manager: Manager


@asynccontextmanager
async def hosting(
    app: Canoa, store_url: str, *, is_for_any_app: bool = False, own_ports: frozenset[int] = frozenset()
) -> AsyncIterator[Hosted]:
    """Records and manages on the app's broker inside the block; see `recorder/hosting.py`. On the memory broker, what
    the app routes is stored first. `own_ports`: where this program listens; nodes that say they do are not called."""
    async with AsyncExitStack() as stack:
        hosted = await stack.enter_async_context(
            recorder_hosting.hosting(app, store_url, is_for_any_app=is_for_any_app)
        )
        broker = app.new_broker("manager")
        await broker.open()
        stack.push_async_callback(broker.aclose)
        manager = await stack.enter_async_context(
            managing(
                broker,
                hosted.store,
                events=hosted.recorder.events,
                is_memory=app.settings.is_memory,
                settings=_settings(app, own_ports),
            )
        )
        hosted.desk.routed.managing = manager
        await stack.enter_async_context(system.answering_routed(app, hosted.desk))
        if app.settings.is_memory:
            app.managing = manager
        try:
            yield Hosted(hosted.recorder, hosted.desk, manager)
        finally:
            app.managing = None
            hosted.desk.routed.managing = None


def _settings(app: Canoa, own_ports: frozenset[int]) -> ManagerSettings:
    settings = app.settings
    return ManagerSettings(
        nodes=NodeSettings(
            silence_s=settings.node_silence_s,
            grace_s=settings.node_grace_s,
            routing=settings.routing,
            breaker=BreakerSettings(max_failures=settings.node_failures, down_ms=round(settings.node_down_s * 1000)),
            compression=settings.compression(),
            link_budgets=settings.link_budgets(),
            inbox=settings.node_inbox,
            endpoints=settings.allowed_endpoints(),
            own_ports=own_ports,
        ),
        steps=StepSettings(queue_timeout_s=settings.step_wait_s, travel_s=settings.step_travel_s),
        limit_bytes=settings.max_payload_bytes,
        mqtt=mqtt_address(settings.mqtt, settings) if settings.mqtt else None,
    )
