"""Work that a broker keeps for a node which it no longer reaches goes to that node by its next way.

The same messages, with the ids they had: a node that got one by both ways runs it once. Whether it is still out, the
store says: other managers hear answers, too. A way closes by the node's word, or with this manager's own link. A topic
that was closed for less than anybody could see is told by the number of the node's link there: it is another one.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from canoa.errors import CanoaError
from canoa.logs import get_logger
from canoa.transports.reaching import KEEPING
from canoa.transports.under_way import MAX_MESSAGES, place_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    from canoa.broker.port import Message, PublishOutcome
    from canoa.store.routed_port import NodeRow, RoutedStore
    from canoa.transports.reaching import Reaching
    from canoa.transports.under_way import Place
    from canoa.vocabulary import NodeId

log = get_logger(__name__)

LOOK_EVERY_S: Final = 0.5
PATIENCE_S: Final = 2.0
"""A link that is merely cut is back within this, mostly, and its broker still has everything."""
AGAIN_AFTER_S: Final = 2.0
"""Where the next way did not take it, either."""
PAGE: Final = MAX_MESSAGES
"""Of what is out at one node, to begin with: mostly there is less."""


class Stranded:
    """`rows`: what is known of nodes. Belongs to the event loop."""

    def __init__(self, reaching: Reaching, store: RoutedStore, rows: Mapping[NodeId, NodeRow]) -> None:
        self._reaching = reaching
        self._store = store
        self._rows = rows
        self._loop = asyncio.get_running_loop()
        self._up_s: dict[str, float] = {}  # when each way was last seen up, by the loop's clock
        self._not_before_s: dict[Place, float] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await self.look()
            except CanoaError as exc:
                log.warning("stranded_work_waits", reason=str(exc))

    async def look(self) -> None:
        now_s = self._loop.time()
        self._up_s |= {way: now_s for way in KEEPING if self._reaching.is_up(way)}
        self._not_before_s = {place: at_s for place, at_s in self._not_before_s.items() if at_s > now_s}
        for place in self._reaching.under_way.places():
            if place not in self._not_before_s and self._is_stranded(place, now_s):
                await self._send_again(place)

    def _is_stranded(self, place: Place, now_s: float) -> bool:
        """There is another way by now, or another link by the same."""
        row = self._rows.get(place.node_id)
        way = "" if row is None else self._reaching.way(row)
        if row is None or not way or place_of(row, way) == place:
            return False
        is_down = now_s - self._up_s.setdefault(place.way, now_s) >= PATIENCE_S
        return is_down or place.way not in row.open_ways or place_of(row, place.way) != place

    async def _send_again(self, place: Place) -> None:
        kept = self._reaching.under_way.at(place)
        out = await self._still_out(place.node_id, kept.keys())
        self._reaching.under_way.drop(kept.keys() - out)
        messages = [message for request_id, message in kept.items() if request_id in out]
        if messages:
            log.warning("work_sent_again", node_id=place.node_id, way=place.way, steps=len(messages))
            on_sent = partial(self._on_sent, place, messages)
            self._reaching.post(place.node_id, messages, on_sent, is_work=True, is_again=True)

    async def _still_out(self, node_id: NodeId, request_ids: Set[str]) -> Set[str]:
        """Those of them that are. Where more is out than was asked for, the newest are still to be told."""
        limit = PAGE
        while True:
            out = await self._store.sent_steps(node_id, limit=limit)
            found = request_ids & frozenset(out)
            if len(out) < limit or len(found) == len(request_ids):
                return found
            limit *= 4

    def _on_sent(self, place: Place, messages: Sequence[Message], places: range, outcome: PublishOutcome) -> None:
        if outcome is not None:
            now_s = self._loop.time()
            self._not_before_s[place] = now_s + AGAIN_AFTER_S
            self._reaching.under_way.put(place, messages[places.start : places.stop], now_s)
