"""To nodes that have an address: `POST <endpoint>/sapparchi/messages`.

An answer that is not a failure means that the node has the message; what comes of it, it posts to a manager by itself.
Addresses come from registrations, so from anybody: which of them are called at all is in `calling.py`; nothing is sent
along but the message, and no more is read than an answer needs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

import aiohttp

from canoa.errors import BrokerRefusedMessage, DeliveryUnknown, Unroutable, WrongUse
from canoa.transports.calling import CONNECT_WITHIN_S, NotCalled
from canoa.wire import fields
from canoa.wire.bundle import MAX_PARTS, packed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.broker.port import Message, PublishOutcome
    from canoa.store.routed_port import NodeRow
    from canoa.transports.calling import Caller
    from canoa.transports.port import OnSent, SeenTransport
    from canoa.vocabulary import NodeId

PATH: Final = "/sapparchi/messages"
HEALTH_PATH: Final = "/actuator/health"

MAX_ANSWER_BYTES: Final = 16 * 1024

AT_ONCE: Final = 16
"""Requests to one node that are under way. What comes meanwhile waits, and goes together where the node takes that."""
AT_ONCE_BUNDLED: Final = 2

_LOOK: Final = aiohttp.ClientTimeout(total=CONNECT_WITHIN_S)
_BUSY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_ABSENT: Final = frozenset({401, 403, 404, 405, 410, 421, 501})
"""It is another one's address by now, or nobody's."""


class _Item(NamedTuple):
    message: Message
    on_sent: OnSent
    place: int


class _Lane:
    """What goes to one node."""

    def __init__(self, node: NodeRow) -> None:
        self.node = node
        self.waiting: deque[_Item] = deque()
        self.under_way = 0

    @property
    def has_room(self) -> bool:
        return self.under_way < (AT_ONCE_BUNDLED if self.node.takes_bundles else AT_ONCE)

    def take(self) -> tuple[Message, list[_Item]]:
        """The next request: one message, or a bundle of all that waits and fits."""
        if not self.node.takes_bundles or len(self.waiting) == 1:
            item = self.waiting.popleft()
            return item.message, [item]
        first = [self.waiting.popleft() for _ in range(min(MAX_PARTS, len(self.waiting)))]
        message, count = packed([each.message for each in first])[0]
        self.waiting.extendleft(reversed(first[count:]))
        return message, first[:count]


class HttpTransport:
    """`caller`: by whom nodes are called. `aclose` ends what is under way, and leaves the caller open."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[NodeId, _Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_up(self) -> bool:
        return True

    def may_reach(self, node: NodeRow) -> bool:
        return self._caller.may_call(node)

    def post(self, node: NodeRow, messages: Sequence[Message], on_sent: OnSent) -> None:
        lane = self._lanes.get(node.node_id)
        if lane is None:
            lane = self._lanes[node.node_id] = _Lane(node)
        lane.node = node
        lane.waiting.extend(_Item(message, on_sent, place) for place, message in enumerate(messages))
        self._pump(lane)

    async def listeners(self, node: NodeRow) -> int | None:
        """One where its page answers, whatever it says."""
        try:
            async with self._caller.call("GET", node, HEALTH_PATH, timeout=_LOOK):
                return 1
        except NotCalled as exc:
            self._caller.note(node, exc.refusal)
            return 0
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return 0

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _pump(self, lane: _Lane) -> None:
        while lane.waiting and lane.has_room:
            lane.under_way += 1
            task = self._loop.create_task(self._send(lane, *lane.take()), name=f"http[{lane.node.node_id}]")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send(self, lane: _Lane, message: Message, items: list[_Item]) -> None:
        try:
            outcome = await self._outcome(lane.node, message)
        finally:
            lane.under_way -= 1
        for each in items:
            each.on_sent(range(each.place, each.place + 1), outcome)
        self._pump(lane)
        if not lane.waiting and not lane.under_way and self._lanes.get(lane.node.node_id) is lane:
            del self._lanes[lane.node.node_id]

    async def _outcome(self, node: NodeRow, message: Message) -> PublishOutcome:
        url = node.endpoint.rstrip("/") + PATH
        headers = fields.http_headers(message)
        if node.token:  # given to it when it registered: so it knows a manager
            headers["Authorization"] = f"Bearer {node.token}"
        try:
            async with self._caller.call("POST", node, PATH, body=message.body, headers=headers) as answer:
                said = await answer.content.read(MAX_ANSWER_BYTES)
                return _outcome_of(answer.status, url, said)
        except NotCalled as exc:
            self._caller.note(node, exc.refusal)
            return Unroutable(f"{url} is not called: {exc}")
        except (aiohttp.ClientConnectorError, aiohttp.InvalidURL, ValueError) as exc:
            return Unroutable(f"nobody takes messages at {url}: {exc}")
        except (aiohttp.ServerTimeoutError, TimeoutError):
            return DeliveryUnknown(f"{url} did not answer in time")
        except aiohttp.ClientError as exc:
            return DeliveryUnknown(f"the link to {url} broke: {exc}")


def _outcome_of(status: int, url: str, said: bytes) -> PublishOutcome:
    if 200 <= status < 300:
        return None
    if status in _ABSENT or 300 <= status < 400:
        return Unroutable(f"{url} takes no messages (status {status})")
    words = said.decode(errors="replace")[:200]
    if status in _BUSY:
        return BrokerRefusedMessage(f"{url} cannot take more just now (status {status}): {words}")
    return WrongUse(f"{url} refused the message (status {status}): {words}")


_port: type[SeenTransport] = HttpTransport
