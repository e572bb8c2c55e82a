"""The limit: pre-encoded frames on a bare socket. What is left of it is what a task system costs.

Confirms in a window of 500, prefetch 200, one acknowledgement frame per message; what one `recv` brought is
acknowledged with one `send`. Where results are wanted, the worker sends each body back to a queue of the caller's,
neither confirmed nor on disk: no result can come through this broker faster.
"""

from __future__ import annotations

import struct
import sys
import time

from benchmarks import bare, environment
from benchmarks.pool.stamps import tick

PACKAGES: tuple[str, ...] = ()
QUEUE = "bench.limit"
REPLIES = "bench.limit.replies"
SETTINGS = (
    "pre-encoded frames on a bare socket; confirm window 500; prefetch 200; one ack frame per message; "
    "results are bodies sent back, transient and unconfirmed"
)
LEAVES_OUT: dict[str, str] = {}
WORKER = [sys.executable, "-m", "benchmarks.pool.contestants.limit"]

WINDOW = 500
PREFETCH = 200
_CONFIRM = struct.Struct(">7x4xQx1x")


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


def gather(count: int, payload: str) -> float:
    return _exchanges(count, payload, times=1)[0]


def call(count: int, payload: str) -> list[float]:
    return _exchanges(1, payload, times=count)


def _exchanges(count: int, payload: str, *, times: int) -> list[float]:
    """Seconds from sending `count` messages at once to the last one that came back, each time."""
    link = bare.Link(environment.broker_url())
    link.declare(REPLIES)
    arrivals = link.arrivals(REPLIES, prefetch=PREFETCH, is_acking=False)
    message = bare.publication("", QUEUE, payload.encode(), is_persistent=False)
    seconds = []
    for _ in range(times):
        began, missing = time.perf_counter(), count
        link.socket.sendall(message * count)
        while missing:
            missing -= len(next(arrivals))
        seconds.append(time.perf_counter() - began)
    link.delete(REPLIES)
    link.close()
    return seconds


def work() -> None:
    """Consume and acknowledge until killed; where results are wanted, every body goes back first."""
    link = bare.Link(environment.broker_url())
    link.declare(QUEUE)
    has_results = environment.wants_results()
    tag = 0
    for bodies in link.arrivals(QUEUE, prefetch=PREFETCH, is_acking=True):
        frames = []
        for body in bodies:
            tag += 1
            tick()
            if has_results:
                frames.append(bare.publication("", REPLIES, body, is_persistent=False))
            frames.append(bare.ack(tag))
        link.socket.sendall(b"".join(frames))


if __name__ == "__main__":
    work()
