"""AMQP 0-9-1 on a bare socket: just enough to see what the broker itself can take.

No task system and no driver in between, and no care for errors: whatever is unexpected ends the process.
The harness also uses it to look at queues, so that no contestant is asked about itself.
"""

from __future__ import annotations

import re
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

METHOD, HEADER, BODY = 1, 2, 3
HEAD = struct.Struct(">BHI")
FRAME_MAX_BYTES = 131_072
RECEIVE_BYTES = 262_144
_CHANNEL_CLOSE = struct.pack(">HH", 20, 40)
_ACK = struct.Struct(">BHIHHQBB")


def short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return HEAD.pack(kind, channel, len(payload)) + payload + b"\xce"


def method(channel: int, of_class: int, number: int, arguments: bytes = b"") -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", of_class, number) + arguments)


def table(entries: Mapping[str, str]) -> bytes:
    return long(b"".join(short(name) + b"S" + long(value.encode()) for name, value in entries.items()))


def publication(exchange: str, key: str, body: bytes, *, is_persistent: bool = True) -> bytes:
    """The frames of a message without headers; the body fits in one."""
    properties = struct.pack(">HB", 0x1000, 2 if is_persistent else 1)  # delivery mode
    return (
        method(1, 60, 40, b"\0\0" + short(exchange) + short(key) + b"\0")
        + frame(HEADER, 1, struct.pack(">HHQ", 60, 0, len(body)) + properties)
        + frame(BODY, 1, body)
    )


def ack(tag: int) -> bytes:
    """The frame that acknowledges one delivery."""
    return _ACK.pack(METHOD, 1, 13, 60, 80, tag, 0, 0xCE)


class Look(NamedTuple):
    """Messages that are ready, and consumers, of one queue."""

    messages: int
    consumers: int


class Link:
    """A logged-in connection with channel 1 open. Close it, or let the process end."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port or 5672))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.unread = b""
        self.socket.sendall(b"AMQP\x00\x00\x09\x01")
        self.server_version = _version(self.read())
        login = f"\0{unquote(parts.username or 'guest')}\0{unquote(parts.password or 'guest')}".encode()
        self.ask(method(0, 10, 11, long(b"") + short("PLAIN") + long(login) + short("en_US")))
        self.socket.sendall(method(0, 10, 31, struct.pack(">HIH", 2047, FRAME_MAX_BYTES, 0)))
        self.ask(method(0, 10, 40, short(unquote(parts.path[1:]) or "/") + b"\0\0"))
        self.ask(method(1, 20, 10, b"\0"))

    def close(self) -> None:
        self.ask(method(0, 10, 50, struct.pack(">H", 200) + short("") + b"\0\0\0\0"))
        self.socket.close()

    def read(self) -> bytes:
        """The payload of the next frame."""
        while True:
            if len(self.unread) >= HEAD.size:
                end = HEAD.size + HEAD.unpack_from(self.unread)[2]
                if len(self.unread) > end:
                    payload, self.unread = self.unread[HEAD.size : end], self.unread[end + 1 :]
                    return payload
            self.unread += self._received()

    def _received(self) -> bytes:
        received = self.socket.recv(RECEIVE_BYTES)
        if not received:
            raise ConnectionError("the broker closed the connection")
        return received

    def ask(self, request: bytes) -> bytes:
        self.socket.sendall(request)
        return self.read()

    def declare(self, queue: str) -> None:
        """A durable classic queue without arguments."""
        self.ask(method(1, 50, 10, b"\0\0" + short(queue) + b"\x02" + long(b"")))

    def declare_exchange(self, exchange: str, kind: str) -> None:
        """Durable, without arguments."""
        self.ask(method(1, 40, 10, b"\0\0" + short(exchange) + short(kind) + b"\x02" + long(b"")))

    def bind(self, queue: str, exchange: str, *, key: str = "", headers: Mapping[str, str] = {}) -> None:
        where = b"\0\0" + short(queue) + short(exchange) + short(key)
        self.ask(method(1, 50, 20, where + b"\0" + table(headers)))

    def look(self, queue: str) -> Look | None:
        """What is in it, or None when there is no such queue."""
        answer = self.ask(method(1, 50, 10, b"\0\0" + short(queue) + b"\x01" + long(b"")))
        if answer.startswith(_CHANNEL_CLOSE):
            self.socket.sendall(method(1, 20, 41))
            self.ask(method(1, 20, 10, b"\0"))
            return None
        return Look(*struct.unpack_from(">II", answer, 5 + answer[4]))

    def arrivals(self, queue: str, *, prefetch: int, is_acking: bool) -> Iterator[list[bytes]]:
        """Consume: the bodies that each `recv` completes, for ever. They fit in one frame."""
        no_ack = b"\0" if is_acking else b"\2"
        self.ask(method(1, 60, 10, struct.pack(">IHB", 0, prefetch, 0)))
        self.ask(method(1, 60, 20, b"\0\0" + short(queue) + short("bare") + no_ack + long(b"")))
        unread = self.unread
        while True:
            position, bodies = 0, []
            while len(unread) - position >= HEAD.size:
                kind, _, size = HEAD.unpack_from(unread, position)
                if len(unread) - position < size + 8:
                    break
                if kind == BODY:
                    begin = position + HEAD.size
                    bodies.append(unread[begin : begin + size])
                position += size + 8
            unread = unread[position:]
            if bodies:
                yield bodies
            unread += self._received()

    def delete(self, queue: str) -> None:
        """Remove it with all it holds; one that does not exist is fine."""
        self.ask(method(1, 50, 40, b"\0\0" + short(queue) + b"\0"))


def _version(start: bytes) -> str:
    found = re.search(rb"\x07versionS\x00\x00\x00.([0-9.]+)", start)
    return found[1].decode() if found else "unknown"
