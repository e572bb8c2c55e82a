"""Whatever happens to a queue of the memory broker, no message is lost, doubled or out of place."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from canoa.broker.memory_queue import Entry, Intents, QueueState, Subscription
from canoa.broker.port import Message, Queue, Settlement

PREFETCH = st.integers(1, 4)


class QueueMachine(RuleBasedStateMachine):
    """Every message is in exactly one place: ready, in a consumer's hands, acknowledged or dead."""

    consumers: Bundle[Subscription] = Bundle("consumers")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.intents = Intents()
        spec = Queue(name="q", max_priority=2, dead_letter_exchange="", max_length=8)
        self.queue = QueueState(spec, None, self.intents)
        self.put_count = 0
        self.acknowledged = 0
        self.known: list[Subscription] = []

    @rule(priority=st.integers(0, 3), ttl_s=st.none() | st.floats(0, 10))
    def put(self, priority: int, ttl_s: float | None) -> None:
        message = Message(body=b"", priority=priority, expiration_s=ttl_s)
        assert self.queue.put(message, "", "q", self.now)
        self.put_count += 1

    @rule(target=consumers, prefetch=PREFETCH)
    def attach(self, prefetch: int) -> Subscription:
        subscription = Subscription(self.queue, prefetch, on_entry=lambda entry: None, on_queue_gone=lambda: None)
        self.queue.attach(subscription, self.now)
        self.known.append(subscription)
        return subscription

    @rule(subscription=consumers, prefetch=PREFETCH)
    def set_prefetch(self, subscription: Subscription, prefetch: int) -> None:
        self.queue.set_prefetch(subscription, prefetch, self.now)

    @rule(subscription=consumes(consumers))
    def detach(self, subscription: Subscription) -> None:
        self.queue.detach(subscription, self.now)
        assert not subscription.is_free

    @rule(data=st.data(), how=st.sampled_from(Settlement), is_through=st.booleans())
    def settle(self, data: st.DataObject, how: Settlement, is_through: bool) -> None:
        holders = [subscription for subscription in self.known if subscription.held]
        if not holders:
            return
        subscription = data.draw(st.sampled_from(holders))
        entry = data.draw(st.sampled_from(list(subscription.held)))
        settled = list(subscription.held).index(entry) + 1 if is_through else 1
        settle = self.queue.settle_through if is_through else self.queue.settle
        assert settle(subscription, entry, how, self.now)
        assert not settle(subscription, entry, how, self.now)
        if how is Settlement.ACK:
            self.acknowledged += settled

    @rule(step_s=st.floats(0, 5))
    def let_time_pass(self, step_s: float) -> None:
        self.now += step_s
        self.queue.expire(self.now)

    @invariant()
    def every_message_is_somewhere(self) -> None:
        in_hand = sum(len(subscription.held) for subscription in self.known)
        assert self.queue.ready + in_hand + self.acknowledged + len(self.intents.dead) == self.put_count

    @invariant()
    def nothing_waits_while_someone_has_room(self) -> None:
        if self.queue.ready:
            assert not any(s.is_attached and len(s.held) < s.prefetch for s in self.known)

    @invariant()
    def limits_hold(self) -> None:
        assert self.queue.ready <= 8
        next_expiry = self.queue.next_expiry()
        assert next_expiry is None or next_expiry >= 0

    def teardown(self) -> None:
        """What is left comes out by priority, then by place."""
        for subscription in self.known:
            self.queue.detach(subscription, self.now)
        self.intents.deliveries.clear()
        last = Subscription(self.queue, 1_000_000, on_entry=lambda entry: None, on_queue_gone=lambda: None)
        self.queue.attach(last, self.now)
        entries: list[Entry] = [entry for _, entry in self.intents.deliveries]
        assert [(-e.priority, e.seq) for e in entries] == sorted((-e.priority, e.seq) for e in entries)


TestQueueMachine = QueueMachine.TestCase
