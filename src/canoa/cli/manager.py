"""`canoa manager`: takes task requests, chooses a node for every step, and answers; a recorder beside it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Annotated

import typer

from canoa import settings as settings_module
from canoa.app import Canoa
from canoa.cli import folder, logs, output, serving
from canoa.cli.greeting import greet_manager
from canoa.cli.listening import listener, own_ports, parse_place, shown_url
from canoa.cli.loading import require_real_broker
from canoa.cli.logs import AsJsonLogs, LogFormat, LogLevel
from canoa.cli.options import AllowedHosts, ApiHost, BrokerUrl, StoreUrl
from canoa.extras import needs_extra
from canoa.logs import get_logger

log = get_logger(__name__)


def manager(
    broker: BrokerUrl = None,
    store: StoreUrl = None,
    host: ApiHost = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the API; 0 takes a free one.")] = 8420,
    allow_host: AllowedHosts = None,
    metrics: Annotated[str, typer.Option(help="Serve Prometheus metrics at host:port, too.", metavar="HOST:PORT")] = "",
    log_level: LogLevel = logs.Level.INFO,
    log_format: LogFormat = logs.Format.AUTO,
    as_json: AsJsonLogs = False,
) -> None:
    """Run tasks over the nodes on a broker, until SIGTERM or Ctrl-C. Several may run side by side, with one PostgreSQL
    store; any of them may die."""
    logs.set_up(log_level, logs.Format.JSON if as_json else log_format)
    with output.errors_explained():
        with needs_extra("canoa manager", "server"):
            from canoa.api.server import serving_api
            from canoa.manager.hosting import hosting
        place = parse_place("--metrics", metrics) if metrics else None
        settings = settings_module.read({"broker": broker, "store": store})
        require_real_broker(settings.broker, "manager")
        app = Canoa("canoa", broker=settings.broker)

    async def main() -> None:
        stop = serving.stop_requested()
        async with AsyncExitStack() as stack:
            listening = stack.enter_context(listener(host, port))
            hosted = await serving.entered(
                lambda _: hosting(
                    app,
                    settings.store or folder.default_store(),
                    is_for_any_app=True,
                    own_ports=own_ports(listening, place),
                ),
                stack,
                stop,
            )
            token = app.settings.api_token or folder.token()
            await stack.enter_async_context(
                serving_api(
                    app,
                    listening,
                    token=token,
                    desk=hosted.desk,
                    collectors=[hosted.manager.collector],
                    hosts=allow_host or [],
                )
            )
            stack.enter_context(serving.metrics_served(hosted.manager, place))
            log.info("api_ready", url=shown_url(listening))
            log.info("manager_ready", store=settings_module.without_password(settings.store or folder.STORE_URL))
            greet_manager(shown_url(listening))
            await serving.until_stopped(stop, hosted.recorder, hosted.manager)
        log.info("manager_stopped")

    serving.run(main(), collect_after=serving.MANAGER_COLLECTS_AFTER)
