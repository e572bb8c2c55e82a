"""Where a program listens is known before it hears of any node."""

from __future__ import annotations

from canoa.cli.listening import listener, own_ports
from canoa.testing.ports import LOOPBACK


def test_the_port_that_was_found_and_those_that_were_named_are_ours() -> None:
    with listener(LOOPBACK, 0) as listening:
        port = listening.getsockname()[1]

        assert own_ports(listening, None) == {port}
        assert own_ports(listening, (LOOPBACK, 9420)) == {port, 9420}
