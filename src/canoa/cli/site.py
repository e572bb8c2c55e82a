"""`canoa site`: a RabbitMQ of your own on this machine, with the plugins Canoa uses.

It outlives the command that started it. Its folder, `.canoa/site/<name>` below the current one, remembers ports and
data, so that a site that was stopped comes back at the same address.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from canoa.cli import output
from canoa.testing.ports import LOOPBACK
from canoa.testing.rabbitmq import RabbitNode

PLUGINS = ("rabbitmq_management", "rabbitmq_mqtt", "rabbitmq_prometheus")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}")

site_app = typer.Typer(no_args_is_help=True, help="A local broker for development: start it, stop it, ask about it.")


class Site(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What `--json` prints. The addresses are there while it runs."""

    name: str
    running: bool
    folder: str
    url: str | None = None
    pid: int | None = None
    management_url: str | None = None
    mqtt_url: str | None = None
    metrics_url: str | None = None


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise typer.BadParameter(f"{name!r} cannot name a folder here; use small letters, digits, '-' and '_'")
    return name


def _checked_port(port: int | None) -> int | None:
    if port is not None and not 0 < port < 65536:
        raise typer.BadParameter(f"{port} is no TCP port; use 1 to 65535")
    return port


Name = Annotated[str, typer.Option(callback=_checked_name, help="Which site; one project may have several.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a URL.")]


@site_app.command()
def start(
    name: Name = "default",
    port: Annotated[
        int | None, typer.Option(callback=_checked_port, help="For AMQP. Otherwise the last one, or any free one.")
    ] = None,
    plugins: Annotated[str, typer.Option(help="RabbitMQ plugins, separated by commas.")] = ",".join(PLUGINS),
    as_json: AsJson = False,
) -> None:
    """Start a local broker and print its URL."""
    wanted = [plugin.strip() for plugin in plugins.split(",") if plugin.strip()]
    with output.errors_explained():
        node = RabbitNode(_folder(name), name=name, plugins=wanted, detached=True)
        if node.is_running:
            output.say(f"Site {name!r} is already running (pid {node.pid}).")
        else:
            node = RabbitNode(_folder(name), name=name, plugins=wanted, amqp_port=port, detached=True)
            output.say(f"Starting site {name!r}; RabbitMQ takes some seconds.")
            node.start()
            output.say(f"Site {name!r} is up (pid {node.pid}). Stop it with: {_command('stop', name)}")
    site = _describe(name, node)
    if site.management_url:
        output.say(f"Pages: {site.management_url} (guest, guest)")
    _show(site, as_json=as_json)


@site_app.command()
def stop(name: Name = "default", as_json: AsJson = False) -> None:
    """Stop a local broker. Its data stays for the next start."""
    with output.errors_explained():
        node = RabbitNode(_folder(name), name=name)
        was_running = node.is_running
        node.stop()
    output.say(f"Site {name!r} is stopped." if was_running else f"Site {name!r} was not running.")
    if as_json:
        _show(_describe(name, node), as_json=True)


@site_app.command()
def status(name: Name = "default", as_json: AsJson = False) -> None:
    """Print the URL of a local broker that runs; exit with 1 when it does not."""
    with output.errors_explained():
        site = _describe(name, RabbitNode(_folder(name), name=name))
    if not site.running:
        output.say(f"Site {name!r} is not running. Start it with: {_command('start', name)}")
    if site.running or as_json:
        _show(site, as_json=as_json)
    raise typer.Exit(0 if site.running else 1)


def _folder(name: str) -> Path:
    return Path(".canoa") / "site" / name


def _command(verb: str, name: str) -> str:
    return f"{output.program()} site {verb}" + ("" if name == "default" else f" --name {name}")


def _describe(name: str, node: RabbitNode) -> Site:
    site = Site(name=name, running=node.is_running, folder=str(node.folder))
    if not site.running:
        return site
    mqtt, metrics = node.plugin_port("rabbitmq_mqtt"), node.plugin_port("rabbitmq_prometheus")
    site.url, site.pid, site.management_url = node.url(), node.pid, node.management_url
    site.mqtt_url = f"mqtt://guest:guest@{LOOPBACK}:{mqtt}" if mqtt else None
    site.metrics_url = f"http://{LOOPBACK}:{metrics}/metrics" if metrics else None
    return site


def _show(site: Site, *, as_json: bool) -> None:
    typer.echo(msgspec.json.encode(site).decode() if as_json else site.url)
