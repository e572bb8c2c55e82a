"""`canoa up`: an app's worker and its API in one process."""

from __future__ import annotations

from typing import Annotated

import typer

from canoa.cli import logs, output, serving
from canoa.cli.greeting import greet
from canoa.cli.listening import listener, shown_url
from canoa.cli.loading import load_app
from canoa.cli.logs import AsJsonLogs, LogFormat, LogLevel
from canoa.cli.worker import BrokerUrl, Target
from canoa.errors import SettingError


def up(
    target: Target,
    broker: BrokerUrl = None,
    host: Annotated[str, typer.Option(help="Address of the API.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the API; 0 takes a free one.")] = 8420,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another name to answer to (Host header); give it once per name.")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Attempts at once, on the loop and in threads.")] = 50,
    drain: Annotated[float, typer.Option(min=0, help="Seconds running attempts may go on after a stop.")] = 30.0,
    log_level: LogLevel = logs.Level.WARNING,
    log_format: LogFormat = logs.Format.AUTO,
    as_json: AsJsonLogs = False,
) -> None:
    """Run an app's worker and API here, until SIGTERM or Ctrl-C. With no broker named: the memory broker."""
    logs.set_up(log_level, logs.Format.JSON if as_json else log_format)
    with output.errors_explained():
        from canoa.worker.worker import WorkerSettings

        try:
            from canoa.api.server import serving_api
        except ModuleNotFoundError as exc:
            raise SettingError(f"`canoa up` needs {exc.name}; install it with: pip install 'canoa[server]'") from exc
        app = load_app(target, broker)
        listening = listener(host, port)
        settings = WorkerSettings(concurrency=concurrency, drain_s=drain, layer=app.settings.layer)

    async def main() -> None:
        stop = serving.stop_requested()
        async with (
            serving.started(app, settings, stop, within_s=30.0) as worker,
            serving_api(app, worker, listening, hosts=allow_host or []),
        ):
            greet(app, target, shown_url(listening))
            await serving.until_stopped(worker, stop)
            output.say("stopping: running actions may finish")
            await worker.stop()
        output.say("stopped")

    serving.run(main())
