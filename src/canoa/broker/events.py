"""What happens to tasks, nodes and plans, told to whoever listens: here at once, in other processes by the broker.

Nothing is kept: who listens late, or too slowly, misses some, and is told so. Programs that hear events let each other
know that they are there, and whether anybody listens: one that is alone sends the broker nothing, and details that
nobody wants are not told: see `are_wanted`.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.logs import get_logger
from canoa.wire.event import Event
from canoa.wire.ids import new_client_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    from canoa.broker.port import Broker, Consumer, Delivery, PublishOutcome

log = get_logger(__name__)

LISTENER_EVENTS: Final = 1000
"""What one listener may be behind. More hides longer stalls, and costs memory per listener."""

TELL_AFTER_S: Final = 0.01
"""How long other processes wait for events, so that many travel together."""

RECORDED: Final = "recorded"
"""The routing key of what recorders tell each other; what workers tell is under `progress.<task id>`."""

PROGRESS_KEYS: Final = topology.progress_key("*")

PRESENT: Final = "present"
WANTED: Final = "wanted"
"""The routing keys by which programs say that they are there, and those who have listeners that as well."""

SAY_EVERY_S: Final = 3.0
WANTED_FOR_S: Final = 10.0
"""After it was last said: three of those may get lost."""

PRESENT_FOR_S: Final = topology.CANCEL_EXPIRES_S
"""As long as the queue of one whose link is cut keeps events for it."""

MAX_OTHERS: Final = 1000
"""Programs that are known of by name: whoever may publish events could make up any number."""

_events = msgspec.json.Decoder(list[Event])


class _Wanted(NamedTuple):
    """By a listener; None: any."""

    task_id: str | None
    action: str | None
    node_id: str | None

    def fits(self, event: Event) -> bool:
        return (
            self.task_id in (None, event.task_id)
            and self.action in (None, event.action)
            and self.node_id in (None, event.node_id)
        )


class Events:
    """`is_shared`: other processes record on this broker, too."""

    def __init__(self, broker: Broker, *, is_shared: bool, on_progress: Callable[[Event], None]) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._own_id = new_client_id()
        self._is_shared = is_shared
        self._on_progress = on_progress
        self._listeners: dict[asyncio.Queue[Event], _Wanted] = {}
        self._watchers: dict[str, set[asyncio.Event]] = {}
        self._untold: list[Event] = []
        self._saying: asyncio.TimerHandle | None = None
        self._others: dict[
            str, float
        ] = {}  # until when they count as there, by the loop's clock; the last heard of last
        self._present_until_s = float("-inf")  # any of them
        self._wanted_until_s = float("-inf")  # elsewhere

    async def consume(self) -> Consumer:
        """Hear what others tell, until `stop`. `RECORDED` and progress come as lists of events."""
        declared = topology.event_queue(self._own_id, RECORDED, PROGRESS_KEYS, PRESENT, WANTED)
        queue = f"canoa.events.{self._own_id}"
        consumer = await self._broker.consume(queue, self._on_delivery, prefetch=100, topology=declared)
        if self._is_shared:
            self._say()
        return consumer

    def stop(self) -> None:
        """Say no more that we are here."""
        if self._saying is not None:
            self._saying.cancel()
            self._saying = None

    def tell(self, event: Event) -> None:
        """Here at once; elsewhere with whatever else happens in this moment. A lone program would pay for that with a
        tenth of each call, since the broker and it have a message more to handle."""
        self._tell_here(event)
        if self._loop.time() < self._present_until_s:
            if not self._untold:
                self._loop.call_later(TELL_AFTER_S, self._tell_others)
            self._untold.append(event)

    @property
    def are_wanted(self) -> bool:
        """Whether somebody listens, here or elsewhere. How tasks begin and end is told in any case."""
        return bool(self._listeners) or self._loop.time() < self._wanted_until_s

    async def listen(
        self, *, task_id: str | None = None, action: str | None = None, node_id: str | None = None
    ) -> AsyncGenerator[Event, None]:
        """Until the iteration is left. Of one task, of one action's, of one node and of steps there; or of all."""
        queue: asyncio.Queue[Event] = asyncio.Queue(LISTENER_EVENTS)
        self._listeners[queue] = _Wanted(task_id, action, node_id)
        if self._saying is not None:
            self._say()
        try:
            while True:
                yield await queue.get()
        finally:
            del self._listeners[queue]

    @contextmanager
    def watching(self, task_id: str) -> Iterator[asyncio.Event]:
        """Set when the task ends. Watch first and look then: an end between a look and the wait would be missed."""
        watchers = self._watchers.setdefault(task_id, set())
        ended = asyncio.Event()
        watchers.add(ended)
        try:
            yield ended
        finally:
            watchers.discard(ended)
            if not watchers:
                self._watchers.pop(task_id, None)

    def _tell_here(self, event: Event) -> None:
        if event.kind == "ended":
            for ended in self._watchers.get(event.task_id, ()):
                ended.set()
        for queue, wanted in self._listeners.items():
            if wanted.fits(event):
                _put(queue, event)

    def _tell_others(self) -> None:
        told, self._untold = self._untold, []
        message = Message(body=msgspec.json.encode(told), persistent=False, app_id=self._own_id)
        to_all = Publication(message=message, exchange=topology.EVENTS, key=RECORDED, mandatory=False)
        self._broker.post(to_all, _ignored, later=True)

    def _say(self) -> None:
        """That we are here, at once and from now on."""
        self.stop()
        message = Message(body=b"", persistent=False, app_id=self._own_id)
        key = WANTED if self._listeners else PRESENT
        said = Publication(message=message, exchange=topology.EVENTS, key=key, mandatory=False)
        self._broker.post(said, _ignored, later=True)
        self._saying = self._loop.call_later(SAY_EVERY_S, self._say)

    def _on_delivery(self, delivery: Delivery) -> None:
        delivery.settle()
        if delivery.message.app_id == self._own_id:
            return
        if delivery.key in (PRESENT, WANTED, RECORDED):
            self._on_other(delivery.message.app_id or "", is_wanting=delivery.key == WANTED)
        if delivery.key not in (PRESENT, WANTED):
            self._on_told(delivery)

    def _on_other(self, who: str, *, is_wanting: bool) -> None:
        now_s = self._loop.time()
        is_new = self._others.pop(who, 0.0) <= now_s
        if len(self._others) >= MAX_OTHERS:
            del self._others[next(iter(self._others))]
        self._present_until_s = self._others[who] = now_s + PRESENT_FOR_S
        if is_wanting:
            self._wanted_until_s = now_s + WANTED_FOR_S
        if is_new and self._saying is not None:
            self._say()  # it has just come, and may not have heard of us

    def _on_told(self, delivery: Delivery) -> None:
        try:
            events = _events.decode(delivery.message.body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            log.warning("event_refused", reason=str(exc))
            return
        for event in events:
            self._tell_here(event)
            if event.kind == "progress":
                self._on_progress(event)


def _put(queue: asyncio.Queue[Event], event: Event) -> None:
    """The oldest goes for the newest: a slow listener sees a gap, and that there is one."""
    if queue.full():
        for _ in range(2):
            queue.get_nowait()
        queue.put_nowait(Event(kind="lagged", task_id="", action="", at=datetime.now(UTC)))
    queue.put_nowait(event)


def _ignored(_: PublishOutcome) -> None:
    """Nobody listening is fine, and so is a listener that misses something."""
