"""What brokers keep for nodes that can also be reached otherwise: should its way close, it is sent again by the next.

A memory of one manager, bounded: what falls out of it is found by its time limit. No I/O, and no clock of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from canoa.vocabulary import TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from canoa.broker.port import Message
    from canoa.store.routed_port import NodeRow
    from canoa.vocabulary import NodeId

MAX_MESSAGES: Final = 10_000
MAX_BYTES: Final = 32 * 1024 * 1024
KEPT_S: Final = 60.0
"""Of what has no end of its own."""


class Place(NamedTuple):
    node_id: NodeId
    way: str
    link: str = ""  # of a topic: which of the node's links had it; what one had is gone with it


def place_of(node: NodeRow, way: str) -> Place:
    """Where what it is sent now is kept."""
    return Place(node.node_id, way, f"{node.instance}.{node.link}" if way in TOPICS else "")


class _Sent(NamedTuple):
    place: Place
    message: Message
    until_s: float


class UnderWay:
    """By request id. Belongs to the event loop."""

    def __init__(self) -> None:
        self._sent: dict[str, _Sent] = {}  # the oldest first
        self._at: dict[Place, int] = {}  # how many
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._sent)

    def __len__(self) -> int:
        return len(self._sent)

    def put(self, place: Place, messages: Sequence[Message], now_s: float) -> None:
        """They go there now."""
        for message in messages:
            request_id = message.message_id or ""
            self.drop([request_id])
            until_s = now_s + (KEPT_S if message.expiration_s is None else message.expiration_s)
            self._sent[request_id] = _Sent(place, message, until_s)
            self._at[place] = self._at.get(place, 0) + 1
            self._bytes += len(message.body)
        self._make_room(now_s)

    def drop(self, request_ids: Iterable[str]) -> None:
        """They ended, or nobody keeps them."""
        for request_id in request_ids:
            sent = self._sent.pop(request_id, None)
            if sent is not None:
                self._bytes -= len(sent.message.body)
                left = self._at[sent.place] - 1
                if left:
                    self._at[sent.place] = left
                else:
                    del self._at[sent.place]

    def places(self) -> list[Place]:
        """Where there is anything."""
        return list(self._at)

    def at(self, place: Place) -> dict[str, Message]:
        """By request id, the oldest first."""
        return {request_id: sent.message for request_id, sent in self._sent.items() if sent.place == place}

    def _make_room(self, now_s: float) -> None:
        while self._sent:
            oldest_id, oldest = next(iter(self._sent.items()))
            if len(self._sent) <= MAX_MESSAGES and self._bytes <= MAX_BYTES and oldest.until_s > now_s:
                return
            self.drop([oldest_id])
