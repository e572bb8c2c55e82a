"""Where a worker listens for HTTP, and under which address managers find it."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from canoa.errors import CanoaError, SettingError

if TYPE_CHECKING:
    from canoa.worker.settings import WorkerSettings

EVERYWHERE: Final = frozenset({"", "0.0.0.0", "::"})


class Address(NamedTuple):
    listener: socket.socket
    endpoint: str


def http_address(settings: WorkerSettings) -> Address:
    """Listens already. Raises `SettingError` for what is no address, `CanoaError` where the port is taken."""
    host, _, port = settings.http.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise SettingError(f"http={settings.http!r:.80} is not host:port; write 127.0.0.1:8430, or 0.0.0.0:0")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, int(port)), family=family, backlog=128)
    except OSError as exc:
        raise CanoaError(f"cannot listen at {settings.http}: {exc.strerror or exc}; choose another place") from exc
    return Address(listener, settings.endpoint.rstrip("/") or _endpoint(listener, host, settings.managers[0]))


def _endpoint(listener: socket.socket, host: str, manager: str) -> str:
    port = listener.getsockname()[1]
    name = _seen_from(manager) if host in EVERYWHERE else host
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def _seen_from(manager: str) -> str:
    """Our address on the way to the manager. Nothing is sent."""
    parts = urlsplit(manager)
    with suppress(OSError, ValueError):
        found = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_DGRAM)
        family, kind, _, _, place = found[0]
        with socket.socket(family, kind) as probe:
            probe.connect(place)
            return str(probe.getsockname()[0])
    return socket.gethostname()
