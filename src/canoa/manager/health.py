"""What the ends of attempts say about nodes, written down when it changes something.

Grouped like all writes: what comes while the store is busy goes with the next group. An answer, also one that an
action raised, closes a circuit; no answer, no queue or a crash counts against the action there and the node as a whole.
A node that a step could not be brought to is gone until it registers again, which closes its circuits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from canoa.errors import CanoaError
from canoa.execution.health import Sign
from canoa.execution.outcome import Outcome
from canoa.execution.proof import OUT
from canoa.logs import get_logger
from canoa.manager.pools import WHOLE_NODE
from canoa.manager.registering import gone
from canoa.store.routed_port import HealthNote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.manager.catalogue import Catalogue
    from canoa.manager.following import Follower
    from canoa.store.routed_port import Move, Moved
    from canoa.vocabulary import ActionName, NodeId

log = get_logger(__name__)

LOST: Final = "lost"
UNREACHED: Final = "a step could not be brought to it"
GROUP: Final = 500
MAX_WAITING: Final = 10_000
"""While the store is away; the oldest are forgotten first: the newest say how it is."""
REPEAT_AFTER_S: Final = 1.0

_FINE: Final = Sign.OK  # see `outcome.OK`
_SIGNS: Final[dict[str, Sign]] = {
    Outcome.OK: Sign.OK,
    Outcome.FAILED: Sign.OK,
    Outcome.RETRIED: Sign.OK,
    Outcome.REFUSED: Sign.OK,
    Outcome.TIMED_OUT: Sign.FAILED,
    Outcome.POISONED: Sign.FAILED,
    LOST: Sign.FAILED,
}


def sign_of(step_outcome: str | None) -> Sign | None:
    """None: it says nothing about the node. It gave the step back, or the step was cancelled."""
    return None if step_outcome is None else _SIGNS.get(step_outcome)


class HealthNotes:
    """Belongs to the event loop, except `post_from_any_thread`."""

    def __init__(self, catalogue: Catalogue, follower: Follower) -> None:
        self._catalogue = catalogue
        self._follower = follower
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[HealthNote] = deque(maxlen=MAX_WAITING)
        self._unsettled: set[tuple[NodeId, str]] = set()  # of what waits or is being written
        self._gone: dict[NodeId, int] = {}  # and which version of it that was
        self._is_wanted = asyncio.Event()

    def on_moved(self, written: Sequence[tuple[Move, Moved]]) -> None:
        """To be told of every move: also of those that say nothing about a node."""
        heard: set[NodeId] = set()
        for move, moved in written:
            sign = sign_of(moved.step_outcome)
            if sign is None or moved.node_id is None or moved.action is None:
                continue
            if sign is _FINE:
                heard.add(moved.node_id)
            if sign is not _FINE or self._catalogue.breakers or self._unsettled:  # circuits are open almost never
                self._note(moved, moved.node_id, moved.action, sign, move.now_ms)
        for node_id in heard:
            self._catalogue.heard(node_id)

    def _note(self, moved: Moved, node_id: NodeId, action: ActionName, sign: Sign, now_ms: int) -> None:
        row = self._catalogue.rows.get(node_id)
        if moved.step_outcome == LOST and row is not None:
            self._gone[node_id] = row.version
        for circuit in (action, WHOLE_NODE):
            self._post(_note(node_id, circuit, sign, now_ms))

    def close(self, node_id: NodeId) -> None:
        """It started again, or came back: what failed before says nothing about it."""
        for row in self._catalogue.circuits_of(node_id):
            self._post(_note(node_id, row.action, Sign.OK, self._catalogue.now_ms()))

    def post_from_any_thread(self, note: HealthNote) -> None:
        self._loop.call_soon_threadsafe(self._post, note)

    def _post(self, note: HealthNote) -> None:
        circuit = (note.node_id, WHOLE_NODE if note.is_about_node else note.action)
        if note.sign is Sign.OK and circuit not in self._catalogue.breakers and circuit not in self._unsettled:
            return  # it is closed, as almost always
        self._unsettled.add(circuit)
        self._waiting.append(note)
        self._is_wanted.set()

    async def run(self) -> None:
        while True:
            await self._is_wanted.wait()
            self._is_wanted.clear()
            while self._waiting:
                await self._write_some()

    async def _write_some(self) -> None:
        group = [self._waiting.popleft() for _ in range(min(GROUP, len(self._waiting)))]
        try:
            await self._write_gone()
            await self._follower.note_health(group)
        except CanoaError as exc:
            log.warning("health_notes_wait", notes=len(group), reason=str(exc))
            self._waiting.extendleft(reversed(group[: MAX_WAITING - len(self._waiting)]))
            await asyncio.sleep(REPEAT_AFTER_S)
        if not self._waiting:
            self._unsettled.clear()

    async def _write_gone(self) -> None:
        """Whoever has no queue gets nothing more, from any manager, until it registers again: also if it just did."""
        if not self._gone:
            return
        versions, self._gone = self._gone, {}
        try:
            await self._follower.read_changes()
            await self._put_gone(versions)
        except CanoaError:
            self._gone = versions | self._gone
            raise

    async def _put_gone(self, versions: dict[NodeId, int]) -> None:
        found = [self._catalogue.rows.get(node_id) for node_id in versions]
        rows = [row for row in found if row is not None and row.actions and row.version == versions[row.node_id]]
        rows = [row for row in rows if row.proof not in OUT]
        if rows:
            log.warning("nodes_are_gone", node_ids=[row.node_id for row in rows])
            await self._follower.put([gone(row, self._catalogue.now_ms()) for row in rows], why=UNREACHED)


def _note(node_id: NodeId, action: str, sign: Sign, now_ms: int) -> HealthNote:
    return HealthNote(node_id=node_id, action=action, sign=sign, is_about_node=action == WHOLE_NODE, now_ms=now_ms)
