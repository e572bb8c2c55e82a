"""TCP ports for servers that a test starts.

Only loopback, and only numbers that the kernel does not hand out by itself.
"""

from __future__ import annotations

import random
import socket
import time

from canoa.errors import CanoaError

LOOPBACK = "127.0.0.1"

# Below Linux' range for outgoing connections (32768 and up). A server that is killed and started again needs its port
# back; inside that range a client that keeps reconnecting would sooner or later be given that very number as its own.
_CANDIDATES = range(15_000, 32_000)
_TRIES = 200


class PortTaken(CanoaError):
    """Another program listens there."""

    def __init__(self, port: int, purpose: str) -> None:
        super().__init__(
            f"port {port} on {LOOPBACK} ({purpose}) is taken by another program; end that, or use another port"
        )
        self.port = port
        self.purpose = purpose


def free_port() -> int:
    """A port that was free a moment ago. Two calls give two different ports, but for rare luck."""
    for _ in range(_TRIES):
        port = random.choice(_CANDIDATES)
        if is_free(port):
            return port
    raise CanoaError(f"no free TCP port found between {_CANDIDATES.start} and {_CANDIDATES.stop} on {LOOPBACK}")


def is_free(port: int) -> bool:
    """Whether a server could listen there now. Connections that linger after a closed server do not count."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def wait_free(port: int, *, purpose: str, timeout_s: float) -> None:
    """Return once the port is free, or raise `PortTaken`."""
    ends_at = time.monotonic() + timeout_s
    while not is_free(port):
        if time.monotonic() > ends_at:
            raise PortTaken(port, purpose)
        time.sleep(0.05)
