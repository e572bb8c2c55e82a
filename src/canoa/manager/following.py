"""Keeps a manager's copy of the catalogue up to date: by the others' notices, and by looking now and then.

Writes go through here too, so that every write is told. A notice that gets lost costs a few seconds; signs of life,
which have no version, and nodes that were forgotten are seen by reading the whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec

from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.errors import CanoaError
from canoa.logs import get_logger
from canoa.manager.budgets import Spent
from canoa.store.routed_port import BreakerRow
from canoa.vocabulary import Layer, NodeId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.broker.port import Broker, Consumer, Delivery, PublishOutcome
    from canoa.manager.budgets import Budgets
    from canoa.manager.catalogue import Catalogue
    from canoa.manager.node_telling import NodeTelling
    from canoa.manager.watching import Watching
    from canoa.store.routed_port import HealthNote, NodeRow, RoutedStore

log = get_logger(__name__)

LOOK_EVERY_S: Final = 1.0
"""For nodes that have become silent."""
POLL_EVERY_S: Final = 5.0
WHOLE_EVERY_S: Final = 30.0
FORGET_EVERY_S: Final = 3600.0
SAY_EVERY_S: Final = 10.0
"""Which store is used: whoever uses another one hears of it."""
WARN_EVERY_S: Final = 60.0
TELL_EVERY_S: Final = 2.0
"""Of nodes that answered. Much less than an attempt gets for travel: else one that others heard seems silent."""

ONE_STORE: Final = "give all managers of a broker the same CANOA_STORE, or a virtual host to each"

PREFETCH: Final = 100
MAX_NOTICE_BYTES: Final = 4 * 1024 * 1024

_Duty: TypeAlias = Callable[[], Awaitable[None]]


class Changed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One manager to the others."""

    manager: str
    store: int = 0  # which one it shares with others; zero: of a version that did not say
    version: int = 0  # of the catalogue; zero: no node changed
    breakers: Annotated[list[BreakerRow], msgspec.Meta(max_length=20_000)] = []
    answered: Annotated[list[NodeId], msgspec.Meta(max_length=20_000)] = []  # nodes that did, since the last notice
    canaries: Annotated[list[str], msgspec.Meta(max_length=20_000)] = []  # that were answered, likewise, by their ids
    spent: Annotated[dict[NodeId, int], msgspec.Meta(max_length=20_000)] = {}  # bytes since then, like the next
    layers_spent: dict[Layer, int] = {}


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Changed).decode


class Follower:
    def __init__(
        self,
        broker: Broker,
        store: RoutedStore,
        catalogue: Catalogue,
        *,
        manager_id: str,
        watching: Watching,
        budgets: Budgets,
        telling: NodeTelling,
    ) -> None:
        self._broker = broker
        self._store = store
        self._catalogue = catalogue
        self._manager_id = manager_id
        self._watching = watching
        self._budgets = budgets
        self._telling = telling
        self._store_id = 0  # until `open`
        self._warned_s = float("-inf")  # of another store
        self._version = 0  # all that changed up to here is in the copy
        self._is_told = asyncio.Event()
        self.consumer: Consumer | None = None
        self.on_canary: Callable[[str], object] = lambda _: None  # is told of those that others heard answered
        settings = catalogue.settings
        self._duties: dict[_Duty, float] = {
            self.read_changes: POLL_EVERY_S,
            self.tell_heard: TELL_EVERY_S,
            self.say_store: SAY_EVERY_S,
            self.write_signs: settings.touch_every_s,
            self.read_whole: WHOLE_EVERY_S,
            self.forget: FORGET_EVERY_S,
        }

    async def open(self) -> None:
        """Return once the copy is complete and hears of changes."""
        self._store_id = await self._store.identity()
        declared = topology.catalogue_queue(self._manager_id)
        queue = topology.catalogue_queue_name(self._manager_id)
        self.consumer = await self._broker.consume(queue, self._on_notice, prefetch=PREFETCH, topology=declared)
        await self.say_store()
        await self.read_whole()
        self._look_for_silence()

    async def aclose(self) -> None:
        """Write the signs of life that are left, and take the queue along."""
        with suppress(CanoaError):
            await self.write_signs()
        if self.consumer is not None:
            with suppress(CanoaError):
                await self.consumer.cancel()
                await self._broker.delete_queue(self.consumer.queue)

    async def run(self) -> None:
        clock = self._catalogue.clock
        due_s = {duty: clock.monotonic_s() + every_s for duty, every_s in self._duties.items()}
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._is_told.wait()
            now_s = clock.monotonic_s()
            if self._is_told.is_set():
                self._is_told.clear()
                due_s[self.read_changes] = now_s
            self._look_for_silence()
            for duty in [duty for duty, at_s in due_s.items() if at_s <= now_s]:
                due_s[duty] = now_s + self._duties[duty]
                await _tried(duty)

    def _look_for_silence(self) -> None:
        for node_id in self._catalogue.look_for_silence():
            log.warning("node_is_silent", node_id=node_id, silence_s=self._catalogue.settings.silence_s)
        self._telling.look()

    # --- Reading ------------------------------------------------------------------------------------------

    async def read_changes(self) -> None:
        rows = await self._store.nodes(since=self._version)
        self._take(rows)
        await self._read_breakers()

    async def read_whole(self) -> None:
        known_before = dict(self._catalogue.rows)
        rows = await self._store.nodes()
        self._take(rows)
        self._catalogue.keep_only(rows, known_before=known_before)
        await self._read_breakers()

    def _take(self, rows: Sequence[NodeRow]) -> None:
        self._catalogue.take(rows)
        self._version = max(self._version, *(row.version for row in rows), 0)

    async def _read_breakers(self) -> None:
        rows = await self._store.breakers()
        there = {(row.node_id, row.action) for row in rows}
        gone = [key for key in self._catalogue.breakers if key not in there]
        self._catalogue.take_breakers([*rows, *(BreakerRow(node_id=node, action=action) for node, action in gone)])

    # --- Writing ------------------------------------------------------------------------------------------

    async def put(self, rows: Sequence[NodeRow], *, why: str | None = None) -> None:
        """Into the store, then into this copy and, by notice, into those of the others. `why`: onlookers are told, of
        those that left and did not say so."""
        rows = [self._with_last_sign(row) for row in rows]
        put = await self._store.put_nodes(rows)
        self._telling.on_put(rows, put, why=why)
        written = await self._store.nodes(since=put.version - len(rows))  # tokens are as the store has them
        self._catalogue.take([*put.found, *written])
        self._tell(version=put.version)

    def _with_last_sign(self, row: NodeRow) -> NodeRow:
        """Its copy here may be older than what it was last heard."""
        age_s = self._catalogue.signs.age_s(row.node_id, self._catalogue.clock.monotonic_s())
        seen_ms = row.seen_ms if age_s == float("inf") else self._catalogue.now_ms() - int(age_s * 1000)
        return msgspec.structs.replace(row, seen_ms=seen_ms) if seen_ms > row.seen_ms else row

    async def drop(self, rows: Sequence[NodeRow]) -> None:
        """Out of the store, unless they changed there, and out of this copy. The others miss them at their next look at
        the whole."""
        gone = await self._store.drop_nodes({row.node_id: row.version for row in rows})
        self._catalogue.drop(gone)

    async def note_health(self, notes: Sequence[HealthNote]) -> None:
        noted = await self._store.note_health(notes, settings=self._catalogue.settings.breaker)
        self._catalogue.take_breakers(noted.rows)
        if noted.rows:
            self._telling.on_noted(noted)
            self._tell(breakers=noted.rows)

    async def write_signs(self) -> None:
        signs = self._catalogue.signs.take_unwritten()
        if not signs:
            return
        try:
            await self._store.touch_nodes(signs)
        except CanoaError:
            self._catalogue.signs.give_back(signs)
            raise

    async def tell_heard(self) -> None:
        """The others: each of us hears only some of the answers, and sends only some of the messages."""
        answered, canaries = self._watching.take_untold(), self._watching.take_canaries()
        spent = self._budgets.take_untold() or Spent({}, {})
        if answered or canaries or spent.nodes or spent.layers:
            self._tell(answered=answered, canaries=canaries, spent=spent.nodes, layers_spent=spent.layers)

    async def say_store(self) -> None:
        """To the others: those who use another one share the queues with us, and nothing else."""
        self._tell()

    async def forget(self) -> None:
        """Counted from the newest sign there is: a clock that jumps ahead makes nobody old."""
        latest_ms = min(self._catalogue.now_ms(), self._catalogue.signs.newest_ms())
        seen_before_ms = latest_ms - int(self._catalogue.settings.forget_after_s * 1000)
        if gone := await self._store.forget_nodes(seen_before_ms=seen_before_ms):
            self._watching.forget(gone)
            await self.read_whole()

    # --- Notices ------------------------------------------------------------------------------------------

    def _tell(self, **what: Any) -> None:
        changed = Changed(manager=self._manager_id, store=self._store_id, **what)
        message = Message(body=_encode(changed), content_type="application/json", persistent=False)
        publication = Publication(message=message, exchange=topology.CATALOGUE, key="", mandatory=False)
        self._broker.post(publication, _ignored)

    def _on_notice(self, delivery: Delivery) -> None:
        body = delivery.message.body
        delivery.settle()
        try:
            changed = _decode(body[:MAX_NOTICE_BYTES])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            log.warning("catalogue_notice_refused", size_bytes=len(body), reason=str(exc))
            return
        if changed.manager == self._manager_id:
            return
        if changed.store not in (0, self._store_id):
            self._warn(changed.manager)
            return
        self._catalogue.take_breakers(changed.breakers)
        self._watching.others_heard(changed.answered)
        for request_id in changed.canaries:
            self.on_canary(request_id)
        self._budgets.others_spent(Spent(changed.spent, changed.layers_spent))
        if changed.version > self._version:
            self._is_told.set()

    def _warn(self, other: str) -> None:
        """Each of us gets some of the requests and some of the nodes, and knows nothing of the rest."""
        now_s = self._catalogue.clock.monotonic_s()
        if now_s >= self._warned_s + WARN_EVERY_S:
            self._warned_s = now_s
            log.error("another_store_on_this_broker", other_manager=other, remedy=ONE_STORE)


async def _tried(duty: _Duty) -> None:
    try:
        await duty()
    except CanoaError as exc:  # the copy is good enough until the store is back
        log.warning("catalogue_waits", reason=str(exc))


def _ignored(_: PublishOutcome) -> None:
    """Whoever did not hear it looks by himself soon."""
