"""Whether the settings can work: not only each value by itself, but what they name and how they go together."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from canoa.broker.amqp.tls import new_context
from canoa.broker.rabbitmq import parse_url, rabbit_settings
from canoa.doctor.finding import Finding, ok, problem, warning
from canoa.errors import SettingError
from canoa.setting_sources import IN_FILE, OTHER_VARIABLES, PREFIX
from canoa.settings import Settings, Survey, check_scheme, fields, without_password

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

CHECK: Final = "settings"


def look(survey: Survey, variables: Iterable[str] = ()) -> list[Finding]:
    """Everything that is wrong or doubtful, or one line that says it is well. `variables`: the environment's names."""
    found = [problem(CHECK, text) for text in survey.problems]
    if not survey.problems:
        settings = Settings(**{name: each.value for name, each in survey.sourced.items()})
        found += [problem(CHECK, text) for text in _refusals(settings)]
        found += _doubts(settings)
    found += [_unknown(variable) for variable in sorted(variables) if _is_unknown(variable)]
    return found or [ok(CHECK, _summary(survey))]


def _summary(survey: Survey) -> str:
    places = sorted({each.source for each in survey.sourced.values() if each.source != "default"})
    return f"valid; from {', '.join(places) or 'the defaults alone'}"


def _refusals(settings: Settings) -> Iterator[str]:
    checks: list[Callable[[Settings], object]] = [_broker, _tls, _store, _api, _endpoints]
    for check in checks:
        try:
            check(settings)
        except SettingError as exc:
            yield str(exc)


def _broker(settings: Settings) -> None:
    check_scheme(settings.broker)
    if not settings.is_memory:
        parse_url(settings.broker)


def _tls(settings: Settings) -> None:
    new_context(rabbit_settings(settings).tls)


def _store(settings: Settings) -> None:
    if settings.store:
        from canoa.store.opening import new_store

        new_store(settings.store)


def _api(settings: Settings) -> None:
    parts = urlsplit(settings.api)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        shown = without_password(settings.api)
        raise SettingError(f"api {shown!r:.80} is no address of an API; write http://127.0.0.1:8420, or https://…")


def _endpoints(settings: Settings) -> None:
    settings.allowed_endpoints()


def _doubts(settings: Settings) -> Iterator[Finding]:
    is_tls = settings.broker.startswith("amqps:")
    if is_tls and not settings.tls_verify:
        yield warning(CHECK, "the broker's certificate is not verified", "remove tls_verify, and set tls_ca")
    if not is_tls and (settings.tls_ca or settings.tls_cert):
        yield warning(CHECK, "certificates are named, and the broker's URL is without TLS", "write amqps:// in it")
    if _calls_anybody(settings) and not settings.node_tokens:
        yield warning(
            CHECK,
            "whoever can register a node can make managers call any address",
            "write the networks of your nodes into node_endpoints, or set node_tokens",
        )


def _calls_anybody(settings: Settings) -> bool:
    try:
        return settings.allowed_endpoints().is_everything
    except SettingError:  # a problem of its own
        return False


def _is_unknown(variable: str) -> bool:
    known = {f"{PREFIX}{field.name.upper()}" for field in fields()} | OTHER_VARIABLES
    return variable.startswith(PREFIX) and variable.removesuffix(IN_FILE) not in known


def _unknown(variable: str) -> Finding:
    close = difflib.get_close_matches(variable, [f"{PREFIX}{field.name.upper()}" for field in fields()], n=1)
    remedy = f"did you mean {close[0]}?" if close else "remove it, unless another program reads it"
    return warning(CHECK, f"{variable} in the environment is no setting", remedy)
