"""Time limits of actions against the time after which RabbitMQ takes a message back from its worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canoa.doctor.finding import Finding, ok, warning
from canoa.worker.worker import CONSUMER_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from canoa.app import Canoa

CHECK = "time limits"


def look(app: Canoa) -> list[Finding]:
    if app.settings.is_memory:
        return [ok(CHECK, "the memory broker sets none")]
    return list(judge({name: _limit_s(action) for name, action in app.actions.items()}))


def _limit_s(action: Any) -> float | None:
    limit_s: float | None = action.policy.timeout_s
    return limit_s


def judge(limits_s: Mapping[str, float | None]) -> Iterator[Finding]:
    """None: the action may run for ever."""
    long = {name: limit_s for name, limit_s in limits_s.items() if limit_s is None or limit_s > CONSUMER_TIMEOUT_S}
    if not long:
        yield ok(CHECK, f"{len(limits_s)} actions, all within RabbitMQ's {CONSUMER_TIMEOUT_S / 60:g} minutes")
    for name, limit_s in long.items():
        may_run = "for ever" if limit_s is None else f"{limit_s:g} s"
        wanted_ms = round(((limit_s or 86_400) + 60) * 1000)
        yield warning(
            CHECK,
            f"{name} may run {may_run}; RabbitMQ by default takes a task back after {CONSUMER_TIMEOUT_S:g} s",
            f"shorten its timeout, or set consumer_timeout = {wanted_ms} in rabbitmq.conf",
        )
