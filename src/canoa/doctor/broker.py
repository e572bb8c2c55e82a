"""The broker: whether it answers, which version it is, what the user may do there, and what waits for nobody."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

from canoa.api.readiness import probing
from canoa.broker import topology
from canoa.broker.rabbitmq import RabbitBroker, parse_url, rabbit_settings
from canoa.doctor import management
from canoa.doctor.finding import Finding, ok, problem, warning
from canoa.doctor.rights import Rights, Role, lacking
from canoa.errors import CanoaError, QueueMissing
from canoa.settings import check_scheme, without_password

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterator

    from canoa.broker.port import Broker, Depth
    from canoa.settings import Settings

OLDEST: Final = (3, 10)
NEXT_MAJOR: Final = 5
WITHIN_S: Final = 15.0
PROBE_WITHIN_S: Final = 5.0


async def look(
    settings: Settings, *, apps: Collection[str] = (), management_url: str = ""
) -> tuple[list[Finding], float | None]:
    """What was found, and how far our clock is ahead of the broker's, where that is known."""
    if settings.is_memory:
        return [ok("broker", "the memory broker: in one process alone, nothing to reach")], None
    try:
        broker = _new_broker(settings)
        async with asyncio.timeout(WITHIN_S):
            await broker.open()
    except (CanoaError, TimeoutError) as exc:
        return [problem("broker", str(exc) or f"no answer within {WITHIN_S:g} s")], None
    try:
        found = [await _answers(settings), judge_version(broker.server)]
        found += [finding async for finding in _queues(broker)]
    finally:
        await broker.aclose()
    overview = await _overview(settings, management_url)
    return [*found, *judge_overview(overview, apps)], getattr(overview, "ahead_s", None)


def _new_broker(settings: Settings) -> RabbitBroker:
    check_scheme(settings.broker)
    return RabbitBroker(settings.broker, settings=rabbit_settings(settings), name="canoa doctor")


async def _answers(settings: Settings) -> Finding:
    """A link proves little: a message goes there and back."""
    place = without_password(settings.broker)
    async with probing(lambda: _new_broker(settings), within_s=PROBE_WITHIN_S, every_s=0) as readiness:
        verdict = await readiness.verdict()
        if verdict.reason is None:
            verdict = await readiness.verdict()  # the first took the time to connect as well
    if verdict.round_trip_ms is None:
        return problem("broker", f"{place} lets us in, and {verdict.reason}")
    return ok("broker", f"{place} works: a message came back after {verdict.round_trip_ms:.0f} ms")


async def _overview(settings: Settings, url: str) -> management.Overview | management.Silence:
    address, login = parse_url(settings.broker, rabbit_settings(settings).tls)
    return await management.ask(url or management.default_url(address), address, login)


def judge_version(server: dict[str, Any]) -> Finding:
    """By what the broker says about itself at login."""
    product, version = str(server.get("product", "?")), str(server.get("version", "?"))
    numbers = tuple(int(each) for each in re.findall(r"\d+", version)[:2])
    name = f"{product} {version}"
    if product != "RabbitMQ" or not numbers:
        return warning("broker version", name, "Canoa is tested with RabbitMQ 3.10 to 4.x")
    if numbers < OLDEST:
        return problem("broker version", name, "upgrade it to RabbitMQ 3.10 or newer")
    if numbers[0] >= NEXT_MAJOR:
        return warning("broker version", name, "Canoa is tested with RabbitMQ 3.10 to 4.x; look for a newer Canoa")
    return ok("broker version", name)


# --- Queues -------------------------------------------------------------------------------------------


async def _queues(broker: Broker) -> AsyncIterator[Finding]:
    for name in (topology.DEAD, topology.SUBMIT, topology.RESULTS):
        depth = await _depth(broker, name)
        finding = judge_queue(name, depth) if depth else None
        if finding:
            yield finding


async def _depth(broker: Broker, queue: str) -> Depth | None:
    try:
        return await broker.depth(queue)
    except QueueMissing:
        return None


def judge_queue(name: str, depth: Depth) -> Finding | None:
    """Only what waits for nobody is worth a line."""
    if depth.consumers or not depth.messages:
        return None
    if name == topology.DEAD:
        return warning("dead letters", f"{depth.messages:,} wait for a person", "look at them: canoa dead list")
    return warning("recorder", f"{depth.messages:,} messages wait in {name}, and no recorder runs", "canoa recorder")


# --- What the management API tells --------------------------------------------------------------------


def judge_overview(overview: management.Overview | management.Silence, apps: Collection[str]) -> Iterator[Finding]:
    if isinstance(overview, management.Silence):
        remedy = "--management http://host:15672 names it, where it is elsewhere"
        yield ok("management", f"does not answer at {overview.url} ({overview.reason}); {remedy}")
        return
    if overview.plugins:
        yield ok("plugins", ", ".join(overview.plugins))
    if overview.alarms:
        remedy = "free memory or disk there; until then it takes no message from anybody"
        yield problem("alarms", ", ".join(overview.alarms), remedy)
    if overview.rights is not None:
        yield judge_rights(overview.rights, apps)


def judge_rights(granted: Rights, apps: Collection[str]) -> Finding:
    lacks = {role: lacking(role, granted, apps or ("*",)) for role in Role}
    able = [role for role in Role if not lacks[role]]
    unable = [f"not as {role} (lacks {_some(lacks[role])})" for role in Role if lacks[role]]
    found = "; ".join([f"the user may act as {', '.join(able)}" if able else "the user has no role", *unable])
    remedy = "canoa doctor --permissions prints what each role needs"
    if not able:
        return problem("permissions", found, remedy)
    return warning("permissions", found, remedy) if unable else ok("permissions", found)


def _some(texts: list[str], most: int = 3) -> str:
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")
