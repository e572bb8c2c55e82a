"""`canoa recorder`: keeps what is submitted with `result="keep"`, and the dead letters, for any app on a broker."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Annotated

import typer

from canoa import settings as settings_module
from canoa.app import Canoa
from canoa.cli import folder, logs, output, serving
from canoa.cli.listening import listener, shown_url
from canoa.cli.loading import require_real_broker
from canoa.cli.logs import AsJsonLogs, LogFormat, LogLevel
from canoa.cli.options import AllowedHosts, ApiHost, BrokerUrl, StoreUrl
from canoa.extras import needs_extra
from canoa.logs import get_logger

log = get_logger(__name__)


def recorder(
    broker: BrokerUrl = None,
    store: StoreUrl = None,
    host: ApiHost = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Serve the HTTP API at this port, too.", show_default=False)
    ] = None,
    allow_host: AllowedHosts = None,
    log_level: LogLevel = logs.Level.INFO,
    log_format: LogFormat = logs.Format.AUTO,
    as_json: AsJsonLogs = False,
) -> None:
    """Record results and dead letters of all apps on a broker, until SIGTERM or Ctrl-C. Several may run side by side,
    with one store."""
    logs.set_up(log_level, logs.Format.JSON if as_json else log_format)
    with output.errors_explained():
        with needs_extra("canoa recorder", "server"):
            from canoa.api.server import serving_api
            from canoa.recorder.hosting import hosting
        settings = settings_module.read({"broker": broker, "store": store})
        require_real_broker(settings.broker, "recorder")
        app = Canoa("canoa", broker=settings.broker)

    async def main() -> None:
        stop = serving.stop_requested()
        async with AsyncExitStack() as stack:
            hosted = await serving.entered(
                lambda _: hosting(app, settings.store or folder.default_store(), is_for_any_app=True), stack, stop
            )
            if port is not None:
                listening = stack.enter_context(listener(host, port))
                token = app.settings.api_token or folder.token()
                await stack.enter_async_context(
                    serving_api(app, listening, token=token, desk=hosted.desk, hosts=allow_host or [])
                )
                log.info("api_ready", url=shown_url(listening))
            log.info("recorder_ready", store=settings_module.without_password(settings.store or folder.STORE_URL))
            await serving.until_stopped(stop, hosted.recorder)
        log.info("recorder_stopped")

    serving.run(main())
