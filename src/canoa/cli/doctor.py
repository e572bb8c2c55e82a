"""`canoa doctor`: what is wrong here, and what to do about it."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

import typer

from canoa.app import Canoa
from canoa.cli import findings, folder, output
from canoa.cli.loading import load_app
from canoa.cli.options import BrokerUrl
from canoa.doctor.finding import Finding
from canoa.errors import SettingError
from canoa.settings import Settings, Survey, survey

AppTarget = Annotated[
    str | None,
    typer.Argument(help="The app, as module:app.", metavar="MODULE:APP", envvar="CANOA_APP", show_default=False),
]


def doctor(
    target: AppTarget = None,
    broker: BrokerUrl = None,
    management: Annotated[
        str, typer.Option(help="RabbitMQ's management API; otherwise looked for where it usually is.", metavar="URL")
    ] = "",
    permissions: Annotated[
        bool, typer.Option("--permissions", help="Print the commands that give each role its rights, and leave.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Look at settings, broker, store and machine. Exit code 0: no problem, 1: at least one."""
    with output.errors_explained(as_json=as_json):
        _check_management(management)
        found = survey({"broker": broker})
        app = load_app(target, broker) if target and not found.problems else None
        if permissions:
            _show_permissions(found, app, as_json=as_json)
            return
        results = asyncio.run(_examine(found, app, management))
        findings.show(results, as_json=as_json)
        raise typer.Exit(findings.exit_code(results))


async def _examine(found: Survey, app: Canoa | None, management_url: str) -> list[Finding]:
    """The cheap first; what needs valid settings only with such."""
    from canoa.doctor import broker, configuration, limits, machine, store

    watch = machine.Watch()
    results = [machine.versions(), *machine.extras(), machine.open_files(), *configuration.look(found, os.environ)]
    ahead_s: dict[str, float | None] = {}
    if findings.exit_code(results) == 0:
        settings, apps = _settings(found, app), [app.name] if app else []
        answers, ahead_s["broker"] = await broker.look(settings, apps=apps, management_url=management_url)
        results += answers
        answers, ahead_s["store"] = await store.look(settings.store, default_url=folder.STORE_URL)
        results += answers
    if app:
        results += limits.look(app)
    return [*results, machine.judge_clock(watch.jumped_s(), ahead_s)]


def _settings(found: Survey, app: Canoa | None) -> Settings:
    """Those of the app, which may name a broker in its code."""
    return app.settings if app else Settings(**{name: each.value for name, each in found.sourced.items()})


def _show_permissions(found: Survey, app: Canoa | None, *, as_json: bool) -> None:
    from canoa.broker.rabbitmq import parse_url
    from canoa.doctor.rights import Role, command

    if found.problems:
        raise SettingError(found.problems[0])
    settings = _settings(found, app)
    vhost = "/" if settings.is_memory else parse_url(settings.broker)[1].vhost
    apps = [app.name] if app else ["*"]
    commands = {role.value: command(role, vhost=vhost, user=f"canoa-{role}", apps=apps) for role in Role}
    if as_json:
        output.data(commands)
        return
    output.say("each role as a user of its own (rabbitmqctl add_user NAME makes one); other names will do")
    for line in commands.values():
        typer.echo(line)


def _check_management(url: str) -> None:
    from canoa.doctor.management import is_http

    if url and not is_http(url):
        raise SettingError(f"--management {url!r:.80} is no address; write http://host:15672, or https://host:15671")
