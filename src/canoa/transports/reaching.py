"""Sends to nodes, each by its best way, and by the next one where that fails. Belongs to the event loop."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from canoa.errors import CanoaError, Unroutable, WrongUse
from canoa.logs import get_logger
from canoa.store.routed_port import NodeRow
from canoa.transports.compressing import PLAIN, Compressing
from canoa.transports.ways import Closed
from canoa.vocabulary import Layer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from canoa.broker.port import Message, PublishOutcome
    from canoa.transports.port import NodeTransport, OnSent
    from canoa.vocabulary import NodeId

log = get_logger(__name__)


class Meter(Protocol):
    """Hears what leaves for nodes."""

    def sent(self, node: NodeRow, way: str, size_bytes: int, *, plain_bytes: int) -> None:
        """Bodies as they travelled, and as they were before. None travelled where `size_bytes` is 0: it failed."""


class Uncounted:
    def sent(self, node: NodeRow, way: str, size_bytes: int, *, plain_bytes: int) -> None:
        """Nobody wants to know."""


class _Trial(NamedTuple):
    """Messages on their way, and the ways that are left should this one fail."""

    node: NodeRow
    messages: Sequence[Message]
    on_sent: OnSent
    way: str
    left: tuple[str, ...]


class Reaching:
    """`by_way`: what this manager speaks. `row`: what is known of a node. `meter` hears what leaves."""

    def __init__(
        self,
        by_way: Mapping[str, NodeTransport],
        *,
        row: Callable[[NodeId], NodeRow | None],
        compressing: Compressing = PLAIN,
        meter: Meter | None = None,
    ) -> None:
        self._by_way = dict(by_way)
        self._row = row
        self._compressing = compressing
        self._meter = meter or Uncounted()
        self._loop = asyncio.get_running_loop()
        self._closed = Closed()
        self._moved: dict[NodeId, str] = {}  # those that are not reached by their preferred way just now

    def speak(self, way: str, transport: NodeTransport) -> None:
        """From now on by this way, too."""
        self._by_way[way] = transport

    def ways(self, node: NodeRow) -> tuple[str, ...]:
        """Those that this manager speaks, and may use to it, the preferred one first."""
        by_way = self._by_way
        return tuple(way for way in node.all_ways if way in by_way and by_way[way].may_reach(node))

    def post(self, node_id: NodeId, messages: Sequence[Message], on_sent: OnSent) -> None:
        """As `NodeTransport.post`. What one way does not take goes by the next; the last one's outcome is told."""
        node = self._row(node_id) or _stranger(node_id)
        ways = self.ways(node)
        if not ways:
            unheard = Unroutable(f"node {node_id!r:.80} listens where this manager does not speak, or may not call")
            self._loop.call_soon(on_sent, range(len(messages)), unheard)
        elif len(ways) == 1:
            self._post(node, ways[0], messages, on_sent)
        else:
            self._try(node, messages, on_sent, ways)

    async def listeners(self, node_id: NodeId) -> int | None:
        """How many take what is sent to it, by the first way where there is anybody; else as the first says that can
        say something. Raises what is wrong with it where none can."""
        node = self._row(node_id) or _stranger(node_id)
        found: list[int | None] = []
        trouble: CanoaError | None = None
        for way in self.ways(node):
            try:
                found.append(await self._by_way[way].listeners(node))
            except CanoaError as exc:
                trouble = exc
            if found and found[-1]:
                return found[-1]
        if trouble is not None and not found:
            raise trouble
        return found[0] if found else None

    def forget(self, node_id: NodeId) -> None:
        self._closed.forget(node_id)
        self._moved.pop(node_id, None)

    def _post(self, node: NodeRow, way: str, messages: Sequence[Message], on_sent: OnSent) -> None:
        """As they travel by this way: by another one they may have to be plain."""
        packed = self._compressing.packed(node, way, messages)

        def on_counted(places: range, outcome: PublishOutcome) -> None:
            plain_bytes = _size_bytes(messages, places)
            size_bytes = plain_bytes if packed is messages else _size_bytes(packed, places)
            self._meter.sent(node, way, 0 if outcome is not None else size_bytes, plain_bytes=plain_bytes)
            on_sent(places, outcome)

        self._by_way[way].post(node, packed, on_counted)

    def _try(self, node: NodeRow, messages: Sequence[Message], on_sent: OnSent, ways: tuple[str, ...]) -> None:
        way = self._closed.first(node.node_id, ways, self._loop.time(), is_up=self._is_up)
        assert way is not None
        trial = _Trial(node, messages, on_sent, way, tuple(each for each in ways if each != way))
        self._post(node, way, messages, partial(self._on_sent, trial))

    def _is_up(self, way: str) -> bool:
        return self._by_way[way].is_up

    def _on_sent(self, trial: _Trial, places: range, outcome: PublishOutcome) -> None:
        node_id = trial.node.node_id
        if outcome is None or type(outcome) is WrongUse:  # the message's own fault is not the way's
            self._worked(trial)
            trial.on_sent(places, outcome)
            return
        self._closed.failed(node_id, trial.way, self._loop.time())
        if not trial.left:
            trial.on_sent(places, outcome)
            return
        log.debug("way_failed", node_id=node_id, way=trial.way, reason=str(outcome))
        parts = trial.messages[places.start : places.stop]
        self._try(trial.node, parts, partial(_told_at, trial.on_sent, places.start), trial.left)

    def _worked(self, trial: _Trial) -> None:
        node_id, way = trial.node.node_id, trial.way
        if self._closed:
            self._closed.worked(node_id, way)
        preferred = self.ways(trial.node)[0]
        before = self._moved.get(node_id, preferred)
        if way == before:
            return
        log.warning("node_reached_otherwise", node_id=node_id, way=way, before=before)
        if way == preferred:
            del self._moved[node_id]
        else:
            self._moved[node_id] = way


def _size_bytes(messages: Sequence[Message], places: range) -> int:
    if len(places) == 1:  # as often as not: a sum would cost as much as all the rest
        return len(messages[places.start].body)
    return sum([len(each.body) for each in messages[places.start : places.stop]])


def _stranger(node_id: NodeId) -> NodeRow:
    """Another manager chose it, and it is not known here yet: its queue says whether it is there."""
    return NodeRow(node_id=node_id, layer=Layer.CLOUD)


def _told_at(on_sent: OnSent, start: int, places: range, outcome: PublishOutcome) -> None:
    """Of a part that was tried again: its places in the whole."""
    on_sent(range(start + places.start, start + places.stop), outcome)
