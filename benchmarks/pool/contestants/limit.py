"""The limit: pre-encoded frames on a bare socket. What is left of it is what a task system costs.

Confirms in a window of 500, prefetch 200, one acknowledgement frame per message; what one `recv` brought is
acknowledged with one `send`.
"""

from __future__ import annotations

import struct
import sys
import time

from benchmarks import bare, environment
from benchmarks.contestant import unmeasured
from benchmarks.pool.stamps import tick

PACKAGES: tuple[str, ...] = ()
QUEUE = "bench.limit"
SETTINGS = "pre-encoded frames on a bare socket; confirm window 500; prefetch 200; one ack frame per message"
LEAVES_OUT = dict.fromkeys(("gather", "call"), "a bare socket runs no actions, so it has no results")
WORKER = [sys.executable, "-m", "benchmarks.pool.contestants.limit"]

WINDOW = 500
PREFETCH = 200
_CONFIRM = struct.Struct(">7x4xQx1x")
_ACK = struct.Struct(">BHIHHQBB")

gather = call = unmeasured


def submit(count: int, payload: str) -> float:
    link = bare.Link(environment.broker_url())
    link.declare(QUEUE)
    link.ask(bare.method(1, 85, 10, b"\0"))
    message = bare.publication("", QUEUE, payload.encode())
    began = time.perf_counter()
    sent = confirmed = 0
    unread = b""
    while confirmed < count:
        room = min(WINDOW - (sent - confirmed), count - sent)
        if room > 0:
            link.socket.sendall(message * room)
            sent += room
        unread += link.socket.recv(bare.RECEIVE_BYTES)
        whole = len(unread) // _CONFIRM.size * _CONFIRM.size
        if whole:
            # One queue confirms in order, so the last tag says it all.
            confirmed = _CONFIRM.unpack_from(unread, whole - _CONFIRM.size)[0]
            unread = unread[whole:]
    elapsed = time.perf_counter() - began
    link.close()
    return elapsed


def fill(count: int, payload: str) -> None:
    submit(count, payload)


def work() -> None:
    """Consume and acknowledge until killed. Bodies fit in one frame."""
    link = bare.Link(environment.broker_url())
    link.ask(bare.method(1, 60, 10, struct.pack(">IHB", 0, PREFETCH, 0)))
    link.ask(bare.method(1, 60, 20, b"\0\0" + bare.short(QUEUE) + bare.short("limit") + b"\0" + bare.long(b"")))
    unread, tag = link.unread, 0
    while True:
        position, acks = 0, []
        while len(unread) - position >= bare.HEAD.size:
            kind, _, size = bare.HEAD.unpack_from(unread, position)
            if len(unread) - position < size + 8:
                break
            if kind == bare.BODY:
                tag += 1
                tick()
                acks.append(_ACK.pack(bare.METHOD, 1, 13, 60, 80, tag, 0, 0xCE))
            position += size + 8
        unread = unread[position:]
        if acks:
            link.socket.sendall(b"".join(acks))
        unread += link.socket.recv(bare.RECEIVE_BYTES)


if __name__ == "__main__":
    work()
