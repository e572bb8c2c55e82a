"""`canoa up`: an app's worker, a manager and a recorder with their store, and the HTTP API in one process."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Final

import typer

from canoa.cli import folder, logs, output, serving
from canoa.cli.greeting import greet
from canoa.cli.listening import listener, own_ports, shown_url
from canoa.cli.loading import load_app
from canoa.cli.logs import AsJsonLogs, LogFormat, LogLevel
from canoa.cli.options import AllowedHosts, ApiHost, BrokerUrl, LayerName, NodeName, Site, StoreUrl, Target
from canoa.extras import needs_extra

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canoa.app import Canoa
    from canoa.recorder.service import Recorder
    from canoa.vocabulary import TaskId


JOINED_WITHIN_S: Final = 5.0


def up(
    target: Target,
    broker: BrokerUrl = None,
    store: StoreUrl = None,
    host: ApiHost = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the API; 0 takes a free one.")] = 8420,
    allow_host: AllowedHosts = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Attempts at once, on the loop and in threads.")] = 50,
    drain: Annotated[float, typer.Option(min=0, help="Seconds running attempts may go on after a stop.")] = 30.0,
    layer: LayerName = None,
    site: Site = None,
    node_id: NodeName = "",
    log_level: LogLevel = logs.Level.WARNING,
    log_format: LogFormat = logs.Format.AUTO,
    as_json: AsJsonLogs = False,
) -> None:
    """Run an app here, until SIGTERM or Ctrl-C: worker, manager, recorder, store and API in one process.

    With no broker named it needs nothing else: what is submitted is stored in .canoa/ of this folder first, and what is
    unfinished when it ends, or is killed, goes on at the next start.
    """
    logs.set_up(log_level, logs.Format.JSON if as_json else log_format)
    with output.errors_explained():
        from canoa.worker.journal import count_crashes
        from canoa.worker.settings import WorkerSettings

        with needs_extra("canoa up", "server"):
            from canoa.api.server import serving_api
            from canoa.manager.hosting import hosting
        app = load_app(target, broker, site=site)

    async def main() -> None:
        stop = serving.stop_requested()
        async with AsyncExitStack() as stack:
            stack.enter_context(folder.held(target))
            listening = stack.enter_context(listener(host, port))
            crashes = count_crashes(folder.JOURNAL, folder.CRASHES) if app.settings.is_memory else {}
            app.use_store(store or app.settings.store or folder.default_store())
            settings = WorkerSettings(
                concurrency=concurrency,
                drain_s=drain,
                layer=layer or app.settings.layer,
                site=app.settings.site,
                node_id=node_id,
                join=app.settings.join,
                manager_url=app.settings.manager_url,
                link_budget=app.settings.link_budget,
                journal=str(folder.JOURNAL) if app.settings.is_memory else "",
            )
            worker = await stack.enter_async_context(serving.started(app, settings, stop, within_s=30.0))
            hosted = await serving.entered(
                lambda _: hosting(app, app.settings.store, own_ports=own_ports(listening)), stack, stop
            )
            if settings.join:  # whoever routes work as soon as we are up shall find it known
                await hosted.manager.wait_known(app.actions, within_s=JOINED_WITHIN_S)
            for plan in app.plans.values():
                await hosted.manager.put_plan(plan.build())
            unfinished = await _gone_on(app, hosted.recorder, crashes) if app.settings.is_memory else 0
            token = app.settings.api_token or folder.token()
            await stack.enter_async_context(
                serving_api(
                    app,
                    listening,
                    token=token,
                    desk=hosted.desk,
                    worker=worker,
                    collectors=[hosted.manager.collector],
                    hosts=allow_host or [],
                )
            )
            folder.announce(shown_url(listening))
            greet(app, target, shown_url(listening), token=token, unfinished=unfinished)
            await serving.until_stopped(stop, worker, hosted.recorder, hosted.manager)
            output.say("stopping: running actions may finish")
            await worker.stop()
        output.say("stopped")

    serving.run(main())


async def _gone_on(app: Canoa, recorder: Recorder, crashes: Mapping[TaskId, int]) -> int:
    policies = {name: action.policy for name, action in app.actions.items()}
    return await recorder.acceptor.publish_unfinished(crashes, policies)
