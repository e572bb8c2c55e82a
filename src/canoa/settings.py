"""What can be set from outside, read once, each value with where it came from.

Precedence: an argument, then the environment (`CANOA_BROKER`, …), then the default. Secrets hide in `repr`.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, Final

import msgspec

from canoa.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping

MEMORY: Final = "memory://"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shared by clients and workers of one app."""

    broker: str = MEMORY  # memory:// or amqp://user:password@host:port/vhost
    max_payload_bytes: int = 1024 * 1024  # arguments or a result, uncompressed; larger costs memory times prefetch
    submit_timeout_s: float = 30.0  # how long a submit waits for a link before it raises
    heartbeat_s: int = 10  # a silently dead link is found within twice this; lower finds it sooner, costs traffic

    def __repr__(self) -> str:
        return f"Settings(broker={without_password(self.broker)!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """msgspec's own would show every field."""
        return [("broker", without_password(self.broker))]

    @property
    def is_memory(self) -> bool:
        return self.broker.startswith("memory:")


def read(arguments: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Settings:
    """Arguments that are None were not given."""
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(Settings):
        variable = f"CANOA_{field.name.upper()}"
        if arguments.get(field.name) is not None:
            values[field.name] = _checked(field.name, arguments[field.name], field.type, is_text=False)
        elif environment.get(variable):
            values[field.name] = _checked(variable, environment[variable], field.type, is_text=True)
    return Settings(**values)


def _checked(name: str, given: Any, type_: Any, *, is_text: bool) -> Any:
    """The value, or `SettingError` under the name it was given by. Only numbers are shown: a URL has secrets."""
    try:
        value = msgspec.convert(given, type_, strict=not is_text)
    except msgspec.ValidationError as exc:
        shown = "" if type_ is str else f" {given!r:.60}"
        raise SettingError(f"{name}{shown} cannot be used: {exc}") from exc
    if type_ is not str and not 0 < value < math.inf:  # NaN is not either
        raise SettingError(f"{name} is {value!r}; it must be a number above 0")
    return value


def without_password(url: str) -> str:
    """The URL as it may be shown."""
    scheme, separator, rest = url.partition("://")
    login, at, place = rest.rpartition("@")
    user = login.partition(":")[0]
    return f"{scheme}{separator}{user}:***@{place}" if at else url
