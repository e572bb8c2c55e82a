"""Where an MQTT broker is, and how to come in: from a URL to what the library wants. Also for workers."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from canoa.errors import SettingError
from canoa.settings import without_password
from canoa.wire.topics import SCHEMES

if TYPE_CHECKING:
    from canoa.settings import Settings


class MqttAddress(NamedTuple):
    host: str
    port: int
    user: str | None
    password: str | None
    tls: ssl.SSLContext | None

    def __repr__(self) -> str:
        return f"MqttAddress({self.place})"

    @property
    def place(self) -> str:
        """For people: without secrets."""
        return f"{self.host}:{self.port}"

    def arguments(self) -> dict[str, Any]:
        """For the library's client."""
        return {
            "hostname": self.host,
            "port": self.port,
            "username": self.user,
            "password": self.password,
            "tls_context": self.tls,
        }


def mqtt_address(url: str, settings: Settings) -> MqttAddress:
    """Raises `SettingError` for what is none."""
    try:
        parts = urlsplit(url)
        usual = SCHEMES[parts.scheme]
        port = parts.port or usual
        host = parts.hostname or ""
    except (ValueError, KeyError):
        host, port, parts = "", 0, urlsplit("")
    if not host:
        shown = without_password(url)
        raise SettingError(f"mqtt {shown!r:.80} is no address; write mqtt://user:password@host:1883, or mqtts://…")
    user, password = (None if part is None else unquote(part) for part in (parts.username, parts.password))
    return MqttAddress(host, port, user, password, _tls(settings) if parts.scheme == "mqtts" else None)


def _tls(settings: Settings) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.tls_ca or None)
    if settings.tls_cert:
        context.load_cert_chain(settings.tls_cert, settings.tls_key or None)
    if not settings.tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
