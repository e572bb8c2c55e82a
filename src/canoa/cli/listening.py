"""Places to listen at, as people write them: how they are read, and what to say when they cannot be had."""

from __future__ import annotations

import errno
import socket

from canoa.errors import CanoaError, SettingError


def parse_place(option: str, text: str) -> tuple[str, int]:
    """`host:port`, `:port` (this machine only) or `[::1]:port`."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise SettingError(f"{option} {text!r} is not host:port; write {option} 127.0.0.1:9420")
    return host.strip("[]") or "127.0.0.1", int(port)


def listener(host: str, port: int) -> socket.socket:
    """A socket that listens. The port option is called `--port`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as exc:
        raise listening_error("--port", host, port, exc) from exc


def listening_error(option: str, host: str, port: int, cause: OSError) -> CanoaError:
    if cause.errno == errno.EADDRINUSE:
        return CanoaError(f"port {port} on {host} is taken by another program; end that, or choose another {option}")
    return SettingError(f"cannot listen at {host}, port {port}: {cause.strerror or cause}")


def own_ports(listening: socket.socket, *places: tuple[str, int] | None) -> frozenset[int]:
    """Where this program listens, or will."""
    return frozenset({listening.getsockname()[1], *(place[1] for place in places if place is not None)})


def shown_url(listening: socket.socket) -> str:
    """Where a browser on this machine finds it."""
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "localhost"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
