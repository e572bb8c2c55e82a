"""`canoa up`: an app's worker and its API in one process."""

from __future__ import annotations

import importlib.metadata
import socket
from typing import TYPE_CHECKING, Annotated

import typer

from canoa.cli import logs, output, serving
from canoa.cli.loading import load_app
from canoa.cli.worker import BrokerUrl, LogFormat, LogLevel, Target
from canoa.errors import SettingError
from canoa.settings import without_password

if TYPE_CHECKING:
    from canoa.app import Canoa


def up(
    target: Target,
    broker: BrokerUrl = None,
    host: Annotated[str, typer.Option(help="Address of the API.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the API; 0 takes a free one.")] = 8420,
    concurrency: Annotated[int, typer.Option(min=1, help="Attempts at once, on the loop and in threads.")] = 50,
    drain: Annotated[float, typer.Option(min=0, help="Seconds running attempts may go on after a stop.")] = 30.0,
    log_level: LogLevel = "warning",
    log_format: LogFormat = "auto",
) -> None:
    """Run an app's worker and API here, until SIGTERM or Ctrl-C. With no broker named: the memory broker."""
    logs.set_up(log_level, log_format)
    with output.errors_explained():
        from canoa.worker.worker import WorkerSettings

        try:
            from canoa.api.server import serving_api
        except ModuleNotFoundError as exc:
            raise SettingError(f"`canoa up` needs {exc.name}; install it with: pip install 'canoa[server]'") from exc
        app = load_app(target, broker)
        listener = _listener(host, port)
        settings = WorkerSettings(concurrency=concurrency, drain_s=drain)

        async def main() -> None:
            stop = serving.stop_requested()
            async with serving.started(app, settings, within_s=30.0) as worker, serving_api(app, worker, listener):
                _greet(app, listener)
                await serving.until_stopped(worker, stop)
                output.say("stopping: running actions may finish")
            output.say("stopped")

        serving.run(main())


def _listener(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=128)
    except OSError as exc:
        raise SettingError(f"cannot listen on {host}:{port}: {exc.strerror}; choose another --port") from exc


def _greet(app: Canoa, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    where = "the memory broker (this process only)" if app.settings.is_memory else without_password(app.settings.broker)
    names = ", ".join(app.actions)
    output.say(f"canoa {importlib.metadata.version('canoa')} runs {app.name} on {where}: {names}")
    output.say(f"  look   http://{host}:{port}/healthz and http://{host}:{port}/metrics")
    if app.settings.is_memory:
        output.say("  next   canoa site start     a RabbitMQ of your own; it prints the URL for CANOA_BROKER")
        output.say("         canoa worker …       the same app there, in as many processes as you like")
        output.say(f"         canoa call {next(iter(app.actions))} '{{…}}'   from any shell or machine")
    else:
        output.say(f"  next   canoa call {next(iter(app.actions))} '{{…}}'   from any shell or machine")
    output.say("  stop   Ctrl-C; running actions may finish")
