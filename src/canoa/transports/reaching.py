"""Sends to nodes, each by its best way, and by the next one where that fails. Belongs to the event loop."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from canoa.broker.posting import after_trouble
from canoa.errors import CanoaError, Unroutable, WrongUse
from canoa.logs import get_logger
from canoa.store.routed_port import NodeRow
from canoa.transports.compressing import PLAIN, Compressing
from canoa.transports.port import SeenTransport
from canoa.transports.under_way import UnderWay, place_of
from canoa.transports.ways import Closed
from canoa.vocabulary import AMQP, MQTT, MQTT_LINK, Layer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from canoa.broker.port import Message, PublishOutcome
    from canoa.transports.port import NodeTransport, OnSent
    from canoa.vocabulary import NodeId

log = get_logger(__name__)

KEEPING: Final = frozenset({AMQP, MQTT, MQTT_LINK})
"""Ways on which a broker may have a message that the node has not."""


class Meter(Protocol):
    """Hears what leaves for nodes."""

    def sent(self, node: NodeRow, way: str, size_bytes: int, *, held_bytes: int) -> None:
        """Bodies as they travelled; none did where `size_bytes` is 0: it failed. `held_bytes`: as they were before, and
        as they were held; 0 where that is over."""


class Uncounted:
    def sent(self, node: NodeRow, way: str, size_bytes: int, *, held_bytes: int) -> None:
        """Nobody wants to know."""


class _Trial(NamedTuple):
    """Messages on their way, and the ways that are left should this one fail."""

    node: NodeRow
    messages: Sequence[Message]
    on_sent: OnSent
    way: str
    left: tuple[str, ...]
    is_work: bool
    trouble: PublishOutcome  # of the ways before


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
        self.under_way = UnderWay()

    def speak(self, way: str, transport: NodeTransport) -> None:
        """From now on by this way, too."""
        self._by_way[way] = transport

    def ways(self, node: NodeRow) -> tuple[str, ...]:
        """Those that are open, that this manager speaks and may use to it, the preferred one first."""
        return self._usable(node, node.open_ways)

    def _usable(self, node: NodeRow, ways: tuple[str, ...]) -> tuple[str, ...]:
        by_way = self._by_way
        return tuple(way for way in ways if way in by_way and by_way[way].may_reach(node))

    def way(self, node: NodeRow) -> str:
        """The one in use: by which a message would go now. Empty: by none."""
        return self._closed.first(node.node_id, self.ways(node), self._loop.time(), is_up=self.is_up) or ""

    def is_up(self, way: str) -> bool:
        return way in self._by_way and self._by_way[way].is_up

    def post(
        self,
        node_id: NodeId,
        messages: Sequence[Message],
        on_sent: OnSent,
        *,
        is_work: bool = False,
        is_again: bool = False,
    ) -> None:
        """As `NodeTransport.post`. What one way does not take goes by the next. Where none takes it, the first outcome
        that may be better the next time is told, or else the last. `is_work`: each has an id of its own, and is to be
        sent again should the broker that keeps it be gone. `is_again`: they left once already."""
        node = self._row(node_id) or _stranger(node_id)
        ways = self.ways(node)
        if not ways:
            unheard = Unroutable(f"node {node_id!r:.80} listens where this manager does not speak, or may not call")
            self._loop.call_soon(on_sent, range(len(messages)), unheard)
        elif not node.ways:
            self._post(node, ways[0], messages, on_sent, is_again=is_again)
        else:
            self._try(node, messages, on_sent, ways, is_work=is_work, is_again=is_again)

    # --- Looking ------------------------------------------------------------------------------------------

    def can_be_seen(self, node: NodeRow) -> bool:
        """By one of its ways at least."""
        return any(isinstance(self._by_way.get(way), SeenTransport) for way in node.all_ways)

    def may_be_hidden(self, node: NodeRow) -> bool:
        """It may be there by a way at which nobody can look."""
        return any(self.is_up(way) and not isinstance(self._by_way[way], SeenTransport) for way in self.ways(node))

    def may_be_besides(self, node: NodeRow, way: str, seen: Mapping[str, int | None]) -> bool:
        """By another way than this, as far as `seen` shows."""
        return self.may_be_hidden(node) or any(count for each, count in seen.items() if each != way)

    async def seen(self, node_id: NodeId) -> dict[str, int | None]:
        """How many take what is sent to it, by each open way where one can look. Raises what is wrong where none can
        be looked at now."""
        node = self._row(node_id) or _stranger(node_id)
        ways = {way: each for way in self.ways(node) if isinstance(each := self._by_way[way], SeenTransport)}
        found: dict[str, int | None] = {}
        trouble: CanoaError | None = None
        for way, transport in ({way: each for way, each in ways.items() if each.is_up} or ways).items():
            try:
                found[way] = await transport.listeners(node)
            except CanoaError as exc:
                trouble = exc
        if trouble is not None and not found:
            raise trouble
        return found

    # --- Sending ------------------------------------------------------------------------------------------

    def know(self, row: NodeRow, before: NodeRow) -> None:
        """A way that it has opened again, or has by another link, has not failed: it is tried at once."""
        if not self._closed:
            return
        for way in row.open_ways:
            if row.instance != before.instance or way in before.closed or place_of(row, way) != place_of(before, way):
                self._closed.worked(row.node_id, way)

    def forget(self, node_id: NodeId) -> None:
        self._closed.forget(node_id)
        self._moved.pop(node_id, None)

    def _post(self, node: NodeRow, way: str, messages: Sequence[Message], on_sent: OnSent, *, is_again: bool) -> None:
        """As they travel by this way: by another one they may have to be plain."""
        packed = self._compressing.packed(node, way, messages)

        def on_counted(places: range, outcome: PublishOutcome) -> None:
            plain_bytes = _size_bytes(messages, places)
            size_bytes = plain_bytes if packed is messages else _size_bytes(packed, places)
            sent_bytes = 0 if outcome is not None else size_bytes
            self._meter.sent(node, way, sent_bytes, held_bytes=0 if is_again else plain_bytes)
            on_sent(places, outcome)

        self._by_way[way].post(node, packed, on_counted)

    def _try(
        self,
        node: NodeRow,
        messages: Sequence[Message],
        on_sent: OnSent,
        ways: tuple[str, ...],
        *,
        is_work: bool,
        is_again: bool,
        trouble: PublishOutcome = None,
    ) -> None:
        now_s = self._loop.time()
        way = self._closed.first(node.node_id, ways, now_s, is_up=self.is_up)
        assert way is not None
        # Before it is sent: the answer may come sooner than the broker's word. Whoever names no instance is of another
        # make, and may run twice what comes twice.
        if is_work and way in KEEPING and node.instance:
            self.under_way.put(place_of(node, way), messages, now_s)
        elif is_work and self.under_way:
            self.under_way.drop([each.message_id or "" for each in messages])
        left = tuple(each for each in ways if each != way)
        trial = _Trial(node, messages, on_sent, way, left, is_work, trouble)
        self._post(node, way, messages, partial(self._on_sent, trial), is_again=is_again)

    def _on_sent(self, trial: _Trial, places: range, outcome: PublishOutcome) -> None:
        node_id = trial.node.node_id
        told = after_trouble(trial.trouble, outcome)
        if outcome is None or type(outcome) is WrongUse:  # the message's own fault is not the way's
            self._worked(trial)
            trial.on_sent(places, told)
            return
        self._closed.failed(node_id, trial.way, self._loop.time())
        if not trial.left:
            trial.on_sent(places, told)
            return
        log.debug("way_failed", node_id=node_id, way=trial.way, reason=str(outcome))
        parts = trial.messages[places.start : places.stop]
        on_sent = partial(_told_at, trial.on_sent, places.start)
        self._try(trial.node, parts, on_sent, trial.left, is_work=trial.is_work, is_again=True, trouble=told)

    def _worked(self, trial: _Trial) -> None:
        node_id, way = trial.node.node_id, trial.way
        if self._closed:
            self._closed.worked(node_id, way)
        preferred = next(iter(self._usable(trial.node, trial.node.all_ways)), way)  # none may be by now
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
