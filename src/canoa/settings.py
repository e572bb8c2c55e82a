"""What can be set from outside, read once, each value with where it came from.

Precedence: an argument, the environment (`CANOA_BROKER`, …), then the current folder's `.env`, `canoa.toml` and
`[tool.canoa]` in `pyproject.toml`, then the default. To add a setting is to add a field. Secrets hide wherever
settings are shown, also in errors. Where values are looked for is in `setting_sources.py`.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from canoa.errors import SettingError
from canoa.execution import endpoints, link_budget
from canoa.execution.endpoints import Allowed, parse_endpoints
from canoa.execution.link_budget import LinkBudget, parse_budget
from canoa.vocabulary import Drop, Layer, Routing
from canoa.wire import compression_policy
from canoa.wire.compression_policy import CompressionPolicy, parse_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from canoa.setting_sources import Given

MEMORY: Final = "memory://"
_SECRET_PARAMETER: Final = re.compile(r"([?&][^=&#]*(?:password|passphrase|secret|token|key)[^=&#]*=)[^&#]*", re.I)


def without_password(url: str) -> str:
    """The URL as it may be shown. Also when it is none: whatever stands before an @ may be a password."""
    url = _SECRET_PARAMETER.sub(r"\1***", url)
    scheme, separator, rest = url.partition("://") if url.count("://") == 1 else ("", "", url)
    login, at, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    return f"{scheme}{separator}{user}:***@{place}" if at and colon else url


def check_scheme(broker: str) -> None:
    """Raises `SettingError` for a broker that nobody speaks to."""
    if not broker.startswith(("memory:", "amqp://", "amqps://")):
        raise SettingError(
            f"broker {without_password(broker)!r:.80} has a scheme nobody speaks; "
            f"use amqp://user:password@host:5672/vhost, amqps://…, or memory://"
        )


def _hidden(secret: str) -> str:
    return "***" if secret else ""


Url = Annotated[str, msgspec.Meta(extra={"shown": without_password})]
Secret = Annotated[str, msgspec.Meta(extra={"shown": _hidden})]
Rule = Annotated[str, msgspec.Meta(pattern=f"^{compression_policy.RULE}$")]
Budget = Annotated[str, msgspec.Meta(pattern=f"^({link_budget.BUDGET})?$")]
Endpoints = Annotated[str, msgspec.Meta(pattern=f"^{endpoints.ENTRIES}$")]
Count = Annotated[int, msgspec.Meta(gt=0)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e12)]  # not for ever: infinity is no time


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shared by clients, workers and recorders of one app."""

    broker: Url = MEMORY  # memory:// or amqp://user:password@host:port/vhost, amqps://… for TLS
    max_payload_bytes: Count = 1024 * 1024  # arguments or a result, uncompressed; larger costs memory times prefetch
    submit_timeout_s: Seconds = 30.0  # how long a submit waits for a link before it raises
    heartbeat_s: Count = 10  # a silently dead link is found within twice this; lower finds it sooner, costs traffic

    store: Url = ""  # sqlite:///folder/file.db or postgresql://…; empty: none (`canoa up`: sqlite:///.canoa/canoa.db)
    keep_results_s: Seconds = 7 * 86_400.0  # ended tasks and results; longer lets callers come back later, costs disk
    keep_payloads_s: Seconds = 86_400.0  # arguments of ended tasks; needed only to send them again
    keep_letters_s: Seconds = 30 * 86_400.0  # dead letters, also the redriven ones

    step_wait_s: Seconds = 3600.0  # how long a step waits for a node; longer rides out longer outages of a site
    step_travel_s: Seconds = 10.0  # what an attempt gets on top of its time limit, for queueing and travel
    routing: Routing = Routing.ROUND_ROBIN  # how managers choose nodes for actions that do not say it themselves
    node_silence_s: Seconds = 150.0  # after which a node is silent; lower finds the dead sooner, loses bad links
    node_grace_s: Seconds = 60.0  # after which a node that is cut off is dead; longer bridges longer cuts
    node_failures: Count = 3  # in a row, until a node gets no work; lower gives up sooner, and on a hiccup
    node_down_s: Seconds = 60.0  # how long it gets none, until a trial; longer leaves what has recovered unused

    api: Url = "http://127.0.0.1:8420"  # where commands find the API when the broker is the memory broker
    api_token: Secret = ""  # what they show there
    node_inbox: Count = 100_000  # steps that may be out at one node; lower keeps queues of absent devices short
    node_endpoints: Endpoints = endpoints.DEFAULT  # where managers may call nodes over HTTP; see `endpoints.py`
    node_tokens: bool = False  # whether nodes that join over HTTP must show a token; true shuts out those as published

    layer: Layer = Layer.CLOUD  # where this program stands: which rule it compresses by
    site: str = ""  # the place with a broker of its own where this program stands: what it submits may run near to it
    labels: str = ""  # of workers, such as gpu=yes,disk=ssd: what placements may ask for
    join: bool = True  # workers are nodes that managers can reach; false: they take work from the pool alone
    manager_url: Url = ""  # http://host:port of managers, by comma: workers look there, and join there over HTTP
    mqtt: Url = ""  # mqtt://user:password@host:1883, mqtts://…: a broker that devices use, besides RabbitMQ's plugin
    http: str = ""  # host:port where workers take messages over HTTP; empty: nowhere, unless they have no broker
    endpoint: Url = ""  # the address under which managers find that; empty: made of host and port
    node_token: Secret = ""  # what workers show to managers that ask nodes for a token

    outbox: str = ""  # of workers: file for answers while the link is down; empty: by their node id; none: none
    outbox_max_messages: Count = 10_000  # what gives way beyond that, `outbox_drop` says
    outbox_max_bytes: Count = 64 * 1024 * 1024  # more bridges longer cuts, costs disk
    outbox_drop: Drop = Drop.OLDEST  # what gives way when it is full: oldest, newest or refuse
    outbox_always: bool = (
        False  # true: every routed answer is on disk before it is sent; runs less twice, and is slower
    )

    compression_edge: Rule = compression_policy.DEFAULT_EDGE  # algorithm:bytes, or none; see `compression_policy.py`
    compression_fog: Rule = compression_policy.DEFAULT_FOG
    compression_cloud: Rule = compression_policy.DEFAULT_CLOUD

    link_budget: Budget = (
        ""  # of workers: what managers may send to and get from each, such as 10MB/day; empty: anything
    )
    link_budget_edge: Budget = ""  # of managers: the same for all nodes of a layer together
    link_budget_fog: Budget = ""
    link_budget_cloud: Budget = ""

    tls_ca: str = ""  # file with the CAs that may have signed the broker's certificate; empty: those of the system
    tls_cert: str = ""  # file with our own certificate, where the broker asks for one
    tls_key: str = ""  # file with its private key, not encrypted
    tls_verify: bool = True  # false takes any certificate: whoever sits on the line reads and writes along

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """What differs from the default. msgspec's own would show secrets."""
        values = ((field.name, field.default, getattr(self, field.name)) for field in fields())
        return [(name, shown(name, value)) for name, default, value in values if name == "broker" or value != default]

    def compression(self) -> CompressionPolicy:
        return CompressionPolicy(
            {
                Layer.EDGE: parse_rule("compression_edge", self.compression_edge),
                Layer.FOG: parse_rule("compression_fog", self.compression_fog),
                Layer.CLOUD: parse_rule("compression_cloud", self.compression_cloud),
            }
        )

    def link_budgets(self) -> dict[Layer, LinkBudget]:
        """Of the layers that have one."""
        said = {
            Layer.EDGE: self.link_budget_edge,
            Layer.FOG: self.link_budget_fog,
            Layer.CLOUD: self.link_budget_cloud,
        }
        return {layer: parse_budget(f"link_budget_{layer.value.lower()}", text) for layer, text in said.items() if text}

    def allowed_endpoints(self) -> Allowed:
        return parse_endpoints("node_endpoints", self.node_endpoints)

    @property
    def is_memory(self) -> bool:
        return self.broker.startswith("memory:")


class Sourced(msgspec.Struct, frozen=True, kw_only=True):
    """One setting, and where its value came from."""

    name: str
    value: Any
    source: str  # argument, environment, .env, canoa.toml, pyproject.toml or default
    key: str  # what it is called there

    @property
    def shown(self) -> Any:
        return shown(self.name, self.value)

    def __repr__(self) -> str:
        return f"Sourced({self.name}={self.shown!r}, from {self.source})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(self.name, self.shown), ("source", self.source)]


class Survey(msgspec.Struct, frozen=True):
    """Every setting that can be used, and what is wrong with the others."""

    sourced: dict[str, Sourced]
    problems: list[str]


def read(
    arguments: Mapping[str, Any], environment: Mapping[str, str] | None = None, *, folder: Path | None = None
) -> Settings:
    """The settings, or `SettingError`. Arguments that are None were not given."""
    found = survey(arguments, environment, folder=folder)
    if found.problems:
        more = len(found.problems) - 1
        hint = f" (and {more} more; `canoa config validate` lists them)" if more else ""
        raise SettingError(f"{found.problems[0]}{hint}")
    return Settings(**{name: each.value for name, each in found.sourced.items()})


def survey(
    arguments: Mapping[str, Any], environment: Mapping[str, str] | None = None, *, folder: Path | None = None
) -> Survey:
    """The same, with where each value came from, and with every problem instead of the first."""
    from canoa.setting_sources import look_up  # when first used: `import canoa` reads no files

    given, problems = look_up(
        [field.name for field in fields()],
        secrets={field.name for field in fields() if _shower(field.name)},
        arguments=arguments,
        environment=os.environ if environment is None else environment,
        folder=folder,
    )
    sourced: dict[str, Sourced] = {}
    for field in fields():
        try:
            sourced[field.name] = _sourced(field, given.get(field.name))
        except SettingError as exc:
            problems.append(str(exc))
    return Survey(sourced, problems)


@cache
def fields() -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(Settings)


def shown(name: str, value: Any) -> Any:
    """A setting's value as people may see it."""
    shower = _shower(name)
    return shower(value) if shower else value


@cache
def _shower(name: str) -> Callable[[str], str] | None:
    """How the value of a secret is shown; None where it is no secret."""
    (type_,) = (field.type for field in fields() if field.name == name)
    return next((meta.extra["shown"] for meta in getattr(type_, "__metadata__", ()) if meta.extra), None)


def _sourced(field: msgspec.structs.FieldInfo, given: Given | None) -> Sourced:
    if given is None:
        return Sourced(name=field.name, value=field.default, source="default", key=field.name)
    try:
        value = msgspec.convert(given.value, field.type, strict=not given.is_text)
    except msgspec.ValidationError as exc:
        quoted = "" if _shower(field.name) else f" {given.value!r:.60}"
        raise SettingError(f"{given.place}{quoted} cannot be used: {exc}") from exc
    return Sourced(name=field.name, value=value, source=given.source, key=given.key)
