"""Holds the tests' conversation with a real RabbitMQ and writes down both sides, a line per exchange: `>` is us, `<` is
the broker.

`python -m tests.golden.amqp.record HOST PORT > tests/golden/amqp/rabbitmq-VERSION.hex`, with an empty virtual host `/`.
"""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING

from tests.unit.amqp.client import Client
from tests.unit.amqp.conversation import converse

if TYPE_CHECKING:
    from collections.abc import Callable


class RecordedSocket:
    """A broker over TCP; `note` gets who spoke, and the bytes."""

    def __init__(self, host: str, port: int, note: Callable[[str, bytes], None]) -> None:
        self._socket = socket.create_connection((host, port), timeout=10)
        self._note = note

    def close(self) -> None:
        self._socket.close()

    def exchange(self, client: Client, until: Callable[[], bool]) -> None:
        while not until() or client.connection.outgoing:
            if client.connection.outgoing:
                self._send(client.says())
            if not until():
                self._receive(client)

    def _send(self, data: bytes) -> None:
        self._note(">", data)
        self._socket.sendall(data)

    def _receive(self, client: Client) -> None:
        data = self._socket.recv(65536)
        if not data:
            raise ConnectionError("the broker hung up")
        self._note("<", data)
        client.connection.receive(data)


if __name__ == "__main__":
    converse(Client(), RecordedSocket(sys.argv[1], int(sys.argv[2]), lambda side, data: print(side, data.hex())))
