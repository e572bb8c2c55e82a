"""`canoa worker`: run an app's actions."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated
from urllib.parse import urlsplit

import typer

from canoa.cli import logs, output, reload, serving
from canoa.cli.listening import parse_place
from canoa.cli.loading import load_app, require_real_broker
from canoa.cli.logs import AsJsonLogs, LogFormat, LogLevel
from canoa.cli.options import BrokerUrl, LayerName, NodeName, Site, Target
from canoa.cli.outbox import outbox_of
from canoa.execution.placement import parse_labels
from canoa.extras import needs_extra

Labels = Annotated[
    list[str] | None,
    typer.Option("--label", help="name=value that placements may ask for; several times. Otherwise CANOA_LABELS."),
]
OutboxPath = Annotated[
    str | None,
    typer.Option(
        "--outbox",
        help="File in which answers wait while the link is down, or none. Otherwise CANOA_OUTBOX, or one by --node-id.",
        metavar="PATH",
        show_default=False,
    ),
]

ManagerUrl = Annotated[
    str,
    typer.Option(
        "--manager",
        help="http://host:8420 of a manager (several by comma): joins it over HTTP where there is no broker, or with "
        "--http. Otherwise CANOA_MANAGER_URL.",
        metavar="URL",
    ),
]
MqttUrl = Annotated[
    str,
    typer.Option(
        "--mqtt",
        help="mqtt://user:password@host:1883: joins by topics, besides other ways or alone. Without broker, otherwise "
        "CANOA_MQTT.",
        metavar="URL",
    ),
]
HttpPlace = Annotated[
    str,
    typer.Option(
        "--http",
        help="Take messages over HTTP at host:port, besides other ways; needs --manager. Otherwise CANOA_HTTP.",
        metavar="HOST:PORT",
    ),
]

LinkBudget = Annotated[
    str,
    typer.Option(
        "--link-budget",
        help="What managers may send to it and get from it, such as 10MB/day: then it gets no more for a while. "
        "Otherwise CANOA_LINK_BUDGET.",
        metavar="BYTES/TIME",
    ),
]


def worker(
    target: Target,
    broker: BrokerUrl = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Attempts at once, on the loop and in threads.")] = 50,
    processes: Annotated[int, typer.Option(min=0, help="Attempts at once of cpu=True actions; 0: one per core.")] = 0,
    drain: Annotated[float, typer.Option(min=0, help="Seconds running attempts may go on after a stop.")] = 30.0,
    layer: LayerName = None,
    site: Site = None,
    label: Labels = None,
    node_id: NodeName = "",
    manager: ManagerUrl = "",
    mqtt: MqttUrl = "",
    http: HttpPlace = "",
    endpoint: Annotated[
        str, typer.Option(help="The address under which managers find --http, where that is another one.")
    ] = "",
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds it may be cut off before it counts as dead; 0: as the managers think.")
    ] = 0.0,
    outbox: OutboxPath = None,
    link_budget: LinkBudget = "",
    metrics: Annotated[str, typer.Option(help="Serve Prometheus metrics at host:port.", metavar="HOST:PORT")] = "",
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait at start for a broker that is away.")] = 30.0,
    follow_code: Annotated[
        bool, typer.Option(reload.FLAG, help="Drain and start anew whenever a .py file of the app's folder changes.")
    ] = False,
    log_level: LogLevel = logs.Level.INFO,
    log_format: LogFormat = logs.Format.AUTO,
    as_json: AsJsonLogs = False,
) -> None:
    """Run the actions of an app until SIGTERM or Ctrl-C, then drain.

    It joins by every way that it is given, as one node: --broker, --mqtt, --http. Managers use them in the order of its
    layer, go on by the next one when one fails, and come back.
    """
    logs.set_up(log_level, logs.Format.JSON if as_json else log_format)
    with output.errors_explained():
        if follow_code:
            raise typer.Exit(reload.supervise(target))
        reload.follow_lifeline()
        from canoa.worker.settings import WorkerSettings

        place = parse_place("--metrics", metrics) if metrics else None
        app = load_app(target, broker, site=site)
        managers = manager or app.settings.manager_url
        mqtt = mqtt or (app.settings.mqtt if app.settings.is_memory else "")
        if not managers and not mqtt:
            require_real_broker(app.settings.broker, "worker")
        place_http = http or app.settings.http or (_any_port(managers) if managers and app.settings.is_memory else "")
        if mqtt:
            with needs_extra("canoa worker --mqtt", "mqtt"):
                import_module("aiomqtt")
        if place_http:
            with needs_extra("canoa worker --http", "http"):
                import_module("aiohttp")
        settings = WorkerSettings(
            concurrency=concurrency,
            processes=processes,
            drain_s=drain,
            layer=layer or app.settings.layer,
            site=app.settings.site,
            labels=parse_labels(",".join(label) if label else app.settings.labels),
            node_id=node_id,
            grace_s=grace,
            join=app.settings.join,
            manager_url=managers,
            mqtt=mqtt,
            http=place_http,
            endpoint=endpoint or app.settings.endpoint,
            node_token=app.settings.node_token,
            outbox=outbox_of(app.settings.outbox if outbox is None else outbox, node_id, join=app.settings.join),
            outbox_max_messages=app.settings.outbox_max_messages,
            outbox_max_bytes=app.settings.outbox_max_bytes,
            outbox_drop=app.settings.outbox_drop,
            outbox_always=app.settings.outbox_always,
            link_budget=link_budget or app.settings.link_budget,
        )

    async def main() -> None:
        stop = serving.stop_requested()
        async with serving.started(app, settings, stop, within_s=wait) as running:
            with serving.metrics_served(running, place):
                await serving.until_stopped(stop, running)
                await running.stop()

    serving.run(main())


def _any_port(managers: str) -> str:
    """Beside a manager on this machine nobody else need reach us."""
    host = urlsplit(managers.partition(",")[0].strip()).hostname or ""
    return "127.0.0.1:0" if host in ("localhost", "127.0.0.1", "::1") else "0.0.0.0:0"
