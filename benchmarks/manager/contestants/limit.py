"""The limit: a manager and a worker on bare sockets, with every request and answer on disk before anything follows.

What one `recv` brought is one transaction, as large as it happens to be; then it is sent on and acknowledged, each with
one `send`. Messages are neither confirmed nor persistent, the store is SQLite with a row per request and per answer. No
names, no plans, no nodes, no health, no retries: what is left of it is what a manager costs.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import sys
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from benchmarks import bare, environment
from benchmarks.contestant import unmeasured

PACKAGES: tuple[str, ...] = ()
QUEUE = "bench.limit.manager"
NODE = "bench.limit.node"
REPLIES = "bench.limit.manager.replies"
SETTINGS = (
    "a manager and a worker on bare sockets; prefetch 1,000; messages transient and unconfirmed; "
    "SQLite, synchronous=FULL, one transaction for what came together"
)
LEAVES_OUT = dict.fromkeys(("submit", "fill"), "only results are compared here")
WORKER = [sys.executable, "-m", "benchmarks.manager.contestants.limit"]
PREFETCH = 1000

WIDTHS = ((1,), (1, 1, 1), (1, 10, 1))
"""Of the stages of a plan: a single action, a chain, a fan-out with a join."""
SINGLE, CHAIN, FANOUT = range(len(WIDTHS))

REQUEST = 255
_HEAD = struct.Struct(">QBBB")  # the task, its plan, the stage (`REQUEST`: none yet), the place in it

submit = fill = unmeasured


# --- The caller -------------------------------------------------------------------------------------------------


def gather(count: int, payload: str) -> float:
    return _exchanges(SINGLE, count, payload, times=1)[0]


def call(count: int, payload: str) -> list[float]:
    return _exchanges(SINGLE, 1, payload, times=count)


def chain(count: int, payload: str) -> float:
    return _exchanges(CHAIN, count, payload, times=1)[0]


def fanout(count: int, payload: str) -> float:
    return _exchanges(FANOUT, count, payload, times=1)[0]


def _exchanges(plan: int, count: int, payload: str, *, times: int) -> list[float]:
    """Seconds from sending `count` requests at once to the last result, each time."""
    link = bare.Link(environment.broker_url())
    link.declare(REPLIES)
    arrivals = link.arrivals(REPLIES, prefetch=PREFETCH, is_acking=False)
    first, seconds = time.time_ns(), []
    for turn in range(times):
        began, missing = time.perf_counter(), count
        tasks = range(first + turn * count, first + (turn + 1) * count)
        link.socket.sendall(
            b"".join(_to(QUEUE, _HEAD.pack(task, plan, REQUEST, 0) + payload.encode()) for task in tasks)
        )
        while missing:
            missing -= len(next(arrivals))
        seconds.append(time.perf_counter() - began)
    link.delete(REPLIES)
    link.close()
    return seconds


def _to(queue: str, body: bytes) -> bytes:
    return bare.publication("", queue, body, is_persistent=False)


# --- Manager and worker -----------------------------------------------------------------------------------------


class Arrived(NamedTuple):
    task: int
    plan: int
    stage: int
    place: int
    payload: bytes


def manage() -> None:
    """Until killed."""
    store = _store(Path(urlsplit(environment.store_url()).path))
    link = bare.Link(environment.broker_url())
    link.declare(NODE)  # the worker may begin later
    link.declare(QUEUE)
    left: dict[int, int] = {}  # answers of a stage that are missing, by task
    tag = 0
    for bodies in link.arrivals(QUEUE, prefetch=PREFETCH, is_acking=True):
        arrived = [Arrived(*_HEAD.unpack_from(body), body[_HEAD.size :]) for body in bodies]
        frames, ended = [], []
        for each in arrived:
            tag += 1
            frames += [*_following(each, left), bare.ack(tag)]
            if each.task not in left:
                ended.append((each.payload, each.task))
        store.execute("BEGIN IMMEDIATE")
        store.executemany("INSERT INTO moves VALUES (?, ?, ?, ?, ?)", arrived)
        store.executemany("UPDATE moves SET payload = ? WHERE task = ? AND stage = 255", ended)
        store.execute("COMMIT")
        link.socket.sendall(b"".join(frames))


def _following(arrived: Arrived, left: dict[int, int]) -> list[bytes]:
    """What is sent because of it: nothing, the next stage, or the result."""
    task, plan, stage, _, payload = arrived
    if stage != REQUEST and left[task] > 1:
        left[task] -= 1
        return []
    following = 0 if stage == REQUEST else stage + 1
    if following == len(WIDTHS[plan]):
        del left[task]
        return [_to(REPLIES, payload)]
    left[task] = WIDTHS[plan][following]
    return [_to(NODE, _HEAD.pack(task, plan, following, place) + payload) for place in range(left[task])]


def _store(path: Path) -> sqlite3.Connection:
    store = sqlite3.connect(path.with_suffix(".limit"), isolation_level=None)
    store.execute("PRAGMA journal_mode=WAL")
    store.execute("PRAGMA synchronous=FULL")
    store.execute("CREATE TABLE moves (task INTEGER, plan INTEGER, stage INTEGER, place INTEGER, payload BLOB)")
    store.execute("CREATE UNIQUE INDEX moves_key ON moves (task, stage, place)")
    return store


def work() -> None:
    """Until killed."""
    link = bare.Link(environment.broker_url())
    link.declare(NODE)
    tag = 0
    for bodies in link.arrivals(NODE, prefetch=PREFETCH, is_acking=True):
        frames = []
        for body in bodies:
            tag += 1
            frames += [_to(QUEUE, body), bare.ack(tag)]
        link.socket.sendall(b"".join(frames))


if __name__ == "__main__":
    work() if os.fork() == 0 else manage()
