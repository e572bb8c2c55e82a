"""Ports for servers that tests start: free, and nobody else's by accident."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from canoa.testing.ports import LOOPBACK, PortTaken, free_port, is_free, wait_free


def test_a_free_port_can_be_listened_on() -> None:
    with socket.create_server((LOOPBACK, free_port())):
        pass


def test_a_free_port_is_none_the_kernel_gives_to_outgoing_connections() -> None:
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])

    assert all(free_port() < first_outgoing for _ in range(50))


def test_a_taken_port_is_seen_and_named() -> None:
    port = free_port()

    with socket.create_server((LOOPBACK, port)):
        assert not is_free(port)
        with pytest.raises(PortTaken, match=rf"{port} .*\(amqp\)"):
            wait_free(port, purpose="amqp", timeout_s=0)

    wait_free(port, purpose="amqp", timeout_s=0)
