"""The private RabbitMQ, Mosquitto, Redis and PostgreSQL that all contestants share."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from canoa.testing.mosquitto import MosquittoNode
from canoa.testing.ports import LOOPBACK, free_port
from canoa.testing.postgres import PostgresNode
from canoa.testing.rabbitmq import RabbitNode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

REDIS_WITHIN_S = 10.0

ERLANG_ARGS = ("+hmbs", "1048576")
"""How many words of message bodies a process of the broker may hold between two collections of its garbage. With the
46,422 of Erlang, chance decides whether a queue copies its whole backlog again and again: a factor of two, by round."""

RABBITMQ = f"private, as packaged but for `{' '.join(ERLANG_ARGS)}` (its queues collect garbage less often)"


@contextmanager
def rabbitmq() -> Iterator[str]:
    """A RabbitMQ on all cores; yields its URL."""
    with rabbitmq_node() as node:
        yield node.url()


@contextmanager
def rabbitmq_node(plugins: Sequence[str] = ()) -> Iterator[RabbitNode]:
    """The same, for those who want virtual hosts of it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        RabbitNode(Path(folder), erlang_args=ERLANG_ARGS, plugins=plugins) as node,
    ):
        yield node


@contextmanager
def virtual_host(node: RabbitNode) -> Iterator[str]:
    """The URL of an empty one: nobody finds what another one left."""
    name = node.add_vhost()
    try:
        yield node.url(name)
    finally:
        node.release_vhost(name)


@contextmanager
def mosquitto() -> Iterator[MosquittoNode]:
    """A Mosquitto with up to 1,000 messages under way per client, which writes to disk as rarely as packaged."""
    with tempfile.TemporaryDirectory() as folder, MosquittoNode(Path(folder), saves_changes=False) as node:
        yield node


@contextmanager
def postgres() -> Iterator[PostgresNode]:
    """A PostgreSQL as packaged: it syncs what it commits."""
    with tempfile.TemporaryDirectory() as folder, PostgresNode(Path(folder)) as node:
        yield node


@contextmanager
def redis() -> Iterator[str]:
    """A Redis that keeps nothing on disk, and hangs up on no subscriber that reads late; yields its URL."""
    program = shutil.which("redis-server")
    if program is None:
        raise SystemExit(
            "redis-server is missing (some rivals keep results in it); 'apt-get install redis-server' installs it"
        )
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        options = ["--bind", LOOPBACK, "--port", str(port), "--save", "", "--appendonly", "no", "--dir", folder]
        options += ["--client-output-buffer-limit", "pubsub 0 0 0"]
        server = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
        try:
            _wait_for_port(port)
            yield f"redis://{LOOPBACK}:{port}/0"
        finally:
            server.terminate()
            server.wait()


def _wait_for_port(port: int) -> None:
    ends_at = time.monotonic() + REDIS_WITHIN_S
    while True:
        try:
            socket.create_connection((LOOPBACK, port)).close()
            return
        except ConnectionRefusedError:
            if time.monotonic() > ends_at:
                raise
            time.sleep(0.05)
