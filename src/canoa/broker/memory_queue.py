"""One queue of the memory broker: order, priorities, limits, expiry, and whose turn it is.

Pure: time is an argument, and what must happen outside (a delivery to hand over, a message to dead-letter) is left in
`Intents`, on which `memory_hub.py` acts. Nothing here calls back, waits or knows of asyncio.
"""

from __future__ import annotations

import heapq
from collections import deque
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from canoa.broker.dead_letters import DeathReason
from canoa.broker.port import ACK, Message, Overflow, Queue, Settlement

if TYPE_CHECKING:
    from collections.abc import Callable


class Entry:
    """A message in one queue, on one way to a consumer: requeued, it is another entry. `seq` is its place, for good."""

    __slots__ = ("exchange", "expires_at", "key", "message", "priority", "redelivered", "seq")

    def __init__(
        self,
        message: Message,
        exchange: str,
        key: str,
        *,
        seq: int,
        priority: int,
        expires_at: float | None,
        redelivered: bool = False,
    ) -> None:
        self.message: Final = message
        self.exchange: Final = exchange
        self.key: Final = key
        self.seq: Final = seq
        self.priority: Final = priority
        self.expires_at: Final = expires_at
        self.redelivered: Final = redelivered

    def again(self) -> Entry:
        """As it is after a requeue."""
        return Entry(
            self.message,
            self.exchange,
            self.key,
            seq=self.seq,
            priority=self.priority,
            expires_at=self.expires_at,
            redelivered=True,
        )

    def is_expired(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now


class Subscription:
    """A consumer as its queue sees it: what it holds, and how much it may hold."""

    __slots__ = ("held", "is_attached", "is_free", "on_entry", "on_queue_gone", "prefetch", "queue")

    def __init__(
        self,
        queue: QueueState,
        prefetch: int,
        *,
        on_entry: Callable[[Entry], None],
        on_queue_gone: Callable[[], None],
    ) -> None:
        self.queue: Final = queue
        self.prefetch = prefetch
        self.on_entry: Final = on_entry
        self.on_queue_gone: Final = on_queue_gone
        self.held: Final[dict[Entry, None]] = {}  # in the order of arrival
        self.is_attached = False  # cancelled ones keep what they hold
        self.is_free = False  # waits in the queue's line of those with room


class Intents:
    """What queues want done: entries to hand over, and entries to dead-letter."""

    def __init__(self) -> None:
        self.deliveries: deque[tuple[Subscription, Entry]] = deque()
        self.dead: deque[tuple[QueueState, Entry, DeathReason]] = deque()


class _Level:
    """Entries of one priority.

    Entries leave `fresh` in order, so whatever comes back belongs before all that is still there: no search.
    """

    __slots__ = ("fresh", "priority", "returned")

    def __init__(self, priority: int) -> None:
        self.priority: Final = priority
        self.fresh: deque[Entry] = deque()
        self.returned: list[tuple[int, Entry]] = []  # a heap

    def head(self) -> Entry | None:
        if self.returned:
            return self.returned[0][1]
        return self.fresh[0] if self.fresh else None

    def pop(self) -> Entry:
        return heapq.heappop(self.returned)[1] if self.returned else self.fresh.popleft()


class QueueState:
    """A declared queue and what it holds.

    While a consumer has room nothing stays ready: an entry is assigned the moment both exist. Limits and expiry
    therefore only ever touch what nobody could take.
    """

    def __init__(self, spec: Queue, owner: object | None, intents: Intents) -> None:
        self.spec: Final = spec
        self.owner: Final = owner
        self.consumers: list[Subscription] = []
        self.ready = 0
        self.has_expiring = False
        self.is_deleted = False
        self._intents: Final = intents
        self._lowest: Final = _Level(0)
        self._levels = [self._lowest]  # highest priority first; a level appears with its first message
        self._free: deque[Subscription] = deque()
        self._last_seq = 0
        self._rejects_when_full: Final = spec.max_length is not None and spec.overflow is Overflow.REJECT_PUBLISH

    # --- Messages come --------------------------------------------------------------------------------

    def put(self, message: Message, exchange: str, key: str, now: float) -> bool:
        """Keep it, or say no because the queue is full and refuses (`reject-publish`)."""
        spec = self.spec
        if self._rejects_when_full and self.ready >= (spec.max_length or 0):
            return False
        priority = 0 if spec.max_priority is None else min(message.priority or 0, spec.max_priority)
        if spec.message_ttl_s is None and message.expiration_s is None:
            expires_at = None
        else:
            expires_at = now + min(ttl for ttl in (spec.message_ttl_s, message.expiration_s) if ttl is not None)
            self.has_expiring = True
        self._last_seq += 1
        entry = Entry(message, exchange, key, seq=self._last_seq, priority=priority, expires_at=expires_at)
        if self._free:
            self._assign(entry)
        else:
            (self._level(priority) if priority else self._lowest).fresh.append(entry)
            self.ready += 1
            if spec.max_length is not None:
                self._trim(spec.max_length)
        return True

    def put_back(self, entry: Entry) -> None:
        """Return what was assigned to its old place. The consumer's hands must be empty of it by now."""
        heapq.heappush(self._level(entry.priority).returned, (entry.seq, entry))
        self.ready += 1
        if self.spec.max_length is not None and not self._rejects_when_full:
            self._trim(self.spec.max_length)

    # --- Messages go ----------------------------------------------------------------------------------

    def settle(self, subscription: Subscription, entry: Entry, how: Settlement, now: float) -> bool:
        """False when it is not in the consumer's hands any more."""
        if entry not in subscription.held or self.is_deleted:
            return False
        del subscription.held[entry]
        if how is not ACK:
            self._decline(entry, how)
        if not subscription.is_free:
            self._line_up(subscription)
        if self.ready:
            self.feed(now)
        return True

    def settle_through(self, subscription: Subscription, entry: Entry, how: Settlement, now: float) -> bool:
        """The same for it and all that the consumer got before it and still holds."""
        if entry not in subscription.held or self.is_deleted:
            return False
        for earlier in list(takewhile(lambda held: held is not entry, subscription.held)):
            del subscription.held[earlier]
            self._decline(earlier, how)
        return self.settle(subscription, entry, how, now)

    def feed(self, now: float) -> None:
        """Assign what is ready to those with room."""
        while self._free and self.ready:
            entry = self._pop()
            if entry.is_expired(now):
                self._bury(entry, DeathReason.EXPIRED)
            else:
                self._assign(entry)

    def expire(self, now: float) -> None:
        """Give up what is over its time, at the head only: what waits behind a longer-lived message waits with it."""
        for level in self._levels:
            while (head := level.head()) is not None and head.is_expired(now):
                level.pop()
                self.ready -= 1
                self._bury(head, DeathReason.EXPIRED)

    def next_expiry(self) -> float | None:
        heads = (level.head() for level in self._levels)
        return min((h.expires_at for h in heads if h is not None and h.expires_at is not None), default=None)

    def purge(self) -> int:
        dropped, self.ready = self.ready, 0
        for level in self._levels:
            level.fresh.clear()
            level.returned.clear()
        return dropped

    def _decline(self, entry: Entry, how: Settlement) -> None:
        if how is Settlement.REQUEUE:
            self.put_back(entry.again())
        elif how is Settlement.REJECT:
            self._bury(entry, DeathReason.REJECTED)

    def _pop(self) -> Entry:
        level = next(level for level in self._levels if level.fresh or level.returned)
        self.ready -= 1
        return level.pop()

    def _trim(self, max_length: int) -> None:
        while self.ready > max_length:
            self._bury(self._pop(), DeathReason.MAXLEN)

    def _bury(self, entry: Entry, reason: DeathReason) -> None:
        if self.spec.dead_letter_exchange is not None:
            self._intents.dead.append((self, entry, reason))

    def _level(self, priority: int) -> _Level:
        for level in self._levels:
            if level.priority == priority:
                return level
        level = _Level(priority)
        self._levels = sorted([*self._levels, level], key=lambda level: -level.priority)
        return level

    # --- Consumers ------------------------------------------------------------------------------------

    def attach(self, subscription: Subscription, now: float) -> None:
        subscription.is_attached = True
        self.consumers.append(subscription)
        self._line_up(subscription)
        self.feed(now)

    def detach(self, subscription: Subscription, now: float) -> None:
        """It takes nothing new; what it holds stays in its hands. Another may become the active one."""
        if not subscription.is_attached:
            return
        subscription.is_attached = False
        self.consumers.remove(subscription)
        self._leave_line(subscription)
        if self.spec.single_active_consumer and self.consumers and not self.consumers[0].is_free:
            self._line_up(self.consumers[0])
        self.feed(now)

    def set_prefetch(self, subscription: Subscription, prefetch: int, now: float) -> None:
        subscription.prefetch = prefetch
        self._leave_line(subscription)
        self._line_up(subscription)
        self.feed(now)

    def _assign(self, entry: Entry) -> None:
        """Round robin: the first in line takes it and, with room left, queues up again."""
        subscription = self._free.popleft()
        held = subscription.held
        held[entry] = None
        if len(held) < subscription.prefetch:
            self._free.append(subscription)
        else:
            subscription.is_free = False
        self._intents.deliveries.append((subscription, entry))

    def _line_up(self, subscription: Subscription) -> None:
        if not subscription.is_attached or len(subscription.held) >= subscription.prefetch:
            return
        if self.spec.single_active_consumer and self.consumers[0] is not subscription:
            return
        subscription.is_free = True
        self._free.append(subscription)

    def _leave_line(self, subscription: Subscription) -> None:
        if subscription.is_free:
            subscription.is_free = False
            self._free.remove(subscription)
