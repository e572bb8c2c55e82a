"""What tests of broken links say things with: quick settings, control messages, steady traffic."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from tests.contract.broker.inbox import Inbox, letter

from canoa.broker.rabbitmq import RabbitBroker, RabbitSettings
from canoa.errors import BrokerUnreachable, DeliveryUnknown, QueueMissing

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.port import Broker, Publication

WITHIN_S = 15.0
HEARTBEAT_S = 1

QUICK = RabbitSettings(
    heartbeat_s=HEARTBEAT_S, connect_timeout_s=2.0, publish_timeout_s=10.0, login_patience_s=1.0, reconnect_max_s=0.2
)

PASSWORD = "correct-horse"
"""Must never be seen in an error or a log."""

_numbers = itertools.count(1)


def as_user(url: str, user: str, password: str = PASSWORD, *, vhost: str | None = None) -> str:
    parts = urlsplit(url)
    netloc = f"{user}:{password}@{parts.netloc.rpartition('@')[2]}"
    return urlunsplit(parts._replace(netloc=netloc, path=parts.path if vhost is None else f"/{vhost}"))


async def eventually(is_so: Callable[[], bool], *, within_s: float = WITHIN_S) -> float:
    """Look again and again, for a bounded time; say how long it took."""
    started = time.monotonic()
    while not is_so():
        assert time.monotonic() - started < within_s, f"not so within {within_s:g} s"
        await asyncio.sleep(0.01)
    return time.monotonic() - started


def keepers() -> list[str]:
    """The tasks that keep links and channels alive."""
    return sorted(task.get_name() for task in asyncio.all_tasks() if task.get_name().endswith(".keep"))


async def hears(inbox: Inbox, control: Broker, queue: str = "q") -> None:
    """A message sent now, from elsewhere, reaches the inbox."""
    body = b"control %d" % next(_numbers)
    await control.publish(letter(queue, body))
    await eventually(lambda: body in inbox.bodies)


async def until_consumers(control: Broker, count: int, queue: str = "q") -> None:
    ends_at = time.monotonic() + WITHIN_S
    while (seen := await consumers_of(control, queue)) != count:
        assert time.monotonic() < ends_at, f"queue {queue!r} stays at {seen} consumers, {count} expected"
        await asyncio.sleep(0.02)


async def consumers_of(control: Broker, queue: str) -> int | None:
    try:
        return (await control.depth(queue)).consumers
    except QueueMissing:
        return None


async def insist(broker: Broker, publication: Publication) -> None:
    """Publish it, with the same id again and again, until the broker has it for certain."""
    while True:
        try:
            return await broker.publish(publication)
        except (DeliveryUnknown, BrokerUnreachable):
            continue


class Traffic:
    """Several tasks that publish one message after the other, each until it is confirmed. Use `async with`."""

    def __init__(self, broker: RabbitBroker, queue: str = "q", *, tasks: int = 5, body: bytes = b"") -> None:
        self.confirmed: set[bytes] = set()
        self._broker = broker
        self._queue = queue
        self._padding = body
        self._count = tasks
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Traffic:
        self._tasks = [asyncio.create_task(self._publish(number)) for number in range(self._count)]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Each ends with what it is at: nothing is left in doubt."""
        self._is_over = True
        async with asyncio.timeout(WITHIN_S):
            await asyncio.gather(*self._tasks)

    async def _publish(self, task: int) -> None:
        for number in itertools.count():
            if self._is_over:
                return
            name = b"%d.%d " % (task, number)
            await insist(self._broker, letter(self._queue, name + self._padding))
            self.confirmed.add(name)

    async def flows(self, more: int = 200, *, within_s: float = WITHIN_S) -> None:
        """That many more are confirmed."""
        wanted = len(self.confirmed) + more
        await eventually(lambda: len(self.confirmed) >= wanted, within_s=within_s)


async def has_all(inbox: Inbox, traffic: Traffic) -> None:
    """Every confirmed message was delivered at least once."""
    names = {body.partition(b" ")[0] + b" " for body in inbox.bodies}
    if not traffic.confirmed <= names:
        await eventually(lambda: traffic.confirmed <= {body.partition(b" ")[0] + b" " for body in inbox.bodies})
