"""Sends what moves owe, and says so; finds what a manager that died did not get to send.

What is owed in one turn of the event loop to the same place goes there as a bundle, if whoever listens there reads
those. Twice is harmless: a node's answer counts once, and callers take the first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from canoa.broker import topology
from canoa.broker.port import Publication
from canoa.broker.posting import is_hopeless, post
from canoa.clock import now_ms
from canoa.errors import CanoaError, Unroutable
from canoa.execution.outcome import Outcome
from canoa.execution.step_moves import StepEnd, StepLost
from canoa.logs import get_logger
from canoa.repeating import REPEAT_AFTER_S, is_lasting
from canoa.store.routed_port import HOLD_OWED_MS
from canoa.vocabulary import NodeId, TaskId
from canoa.wire import sapparchi
from canoa.wire.bundle import MAX_PARTS, packed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from canoa.broker.port import Broker, PublishOutcome
    from canoa.manager.metrics import ManagerStats
    from canoa.manager.moving import Moving
    from canoa.store.routed_port import Moved, Owed, RoutedStore
    from canoa.transports.reaching import Reaching

log = get_logger(__name__)

LOOK_EVERY_S: Final = 2.0
"""How soon a manager finds what another one left behind, once nobody holds it."""

PAGE: Final = 500

KEEP_TRYING_S: Final = HOLD_OWED_MS / 1000
"""Then whoever looks for what is left takes it over, if it is owed still."""

STOP_WITHIN_S: Final = 2.0

WAIT_S: Final = 0.05
FEW: Final = 16
"""How long final results wait whose callers are told by a reply, as long as there are few: each is work that the broker
would do instead of bringing the next call. Sent with every reply, calls one after the other took 10 % longer."""

MAX_IN_HAND: Final = 5_000
"""Messages without an answer from the broker before deliveries are acknowledged later: a broker that takes more slowly
than it gives must not fill our memory."""


class Sender:
    """`reaching`: how messages get to nodes."""

    def __init__(
        self,
        broker: Broker,
        store: RoutedStore,
        moving: Moving,
        *,
        stats: ManagerStats,
        reaching: Reaching,
    ) -> None:
        self._broker = broker
        self._store = store
        self._moving = moving
        self._stats = stats
        self._reaching = reaching
        self._loop = asyncio.get_running_loop()
        self._in_hand: dict[str, float] = {}  # until when it is tried, by the loop's clock
        self._to_nodes: dict[NodeId, list[Owed]] = {}
        self._replies: dict[str, list[Owed]] = {}  # by queue
        self._others: list[Owed] = []
        self._waiting: list[Owed] = []  # until `_post_waiting`
        self._is_gathering = False  # until the end of this turn of the loop
        self._held_back: deque[Callable[[], object]] = deque()
        self._is_stopped = False
        self._all_sent = asyncio.Event()  # after `stop`

    @property
    def in_hand(self) -> int:
        """What the broker has not answered for."""
        return len(self._in_hand)

    def send(self, owed: Iterable[Owed]) -> None:
        """The first of a turn of the loop at once, for a short way; what follows at its end, together: a group of moves
        is told one by one, and owes much to few. A bundle that is full does not wait for the end: a node works on it
        while the next one is made."""
        if self._is_stopped:
            return
        until_s = self._loop.time() + KEEP_TRYING_S
        for each in owed:
            if each.key not in self._in_hand:
                self._in_hand[each.key] = until_s
                self._send_soon(each)

    def when_roomy(self, then: Callable[[], object]) -> None:
        """Now, or as soon as the broker has taken enough of what it was sent."""
        if len(self._in_hand) < MAX_IN_HAND:
            then()
        else:
            self._held_back.append(then)

    async def run(self) -> None:
        """Never returns: sends what others left behind."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                while await self.send_left() == PAGE:
                    pass
            except CanoaError as exc:
                log.warning("owed_messages_wait", reason=str(exc))

    async def send_left(self) -> int:
        """What nobody holds; says how many there were."""
        left = await self._store.take_owed(now_ms=now_ms(), limit=PAGE, for_ms=HOLD_OWED_MS)
        self.send(left)
        return len(left)

    async def stop(self) -> None:
        """A moment for what is on its way; what is not sent then, the next manager sends."""
        self._end_turn()
        self._post_waiting()
        self._is_stopped = True
        if self._in_hand:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_WITHIN_S):
                    await self._all_sent.wait()

    # --- To the broker ------------------------------------------------------------------------------------

    def _send_soon(self, owed: Owed) -> None:
        together = self._gathered_with(owed)
        together.append(owed)
        if together is self._waiting:
            self._wait()
        elif not self._is_gathering:
            self._is_gathering = True
            self._loop.call_soon(self._end_turn)
            self._post_all()
        elif len(together) == MAX_PARTS and together is not self._others:
            self._post_bundles()

    def _gathered_with(self, owed: Owed) -> list[Owed]:
        if owed.can_wait:
            return self._waiting
        publication = owed.publication
        if publication.exchange == topology.NODE_UNICAST:
            return self._to_nodes.setdefault(_node_of(publication), [])
        if _is_reply(publication):
            return self._replies.setdefault(publication.key, [])
        return self._others

    def _wait(self) -> None:
        if len(self._waiting) == 1:
            self._loop.call_later(WAIT_S, self._post_waiting)
        elif len(self._waiting) >= FEW and self._is_gathering:
            self._others += self._waiting
            self._waiting = []

    def _post_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._post_alone(each)

    def _end_turn(self) -> None:
        self._is_gathering = False
        if self._to_nodes or self._replies or self._others:
            self._post_all()

    def _post_all(self) -> None:
        """Final results last: the broker has more work with one of them than with a bundle, and whoever waits for what
        is behind them is kept waiting."""
        self._post_bundles()
        others, self._others = self._others, []
        for each in others:
            self._post_alone(each)

    def _post_bundles(self) -> None:
        to_nodes, self._to_nodes = self._to_nodes, {}
        replies, self._replies = self._replies, {}
        for node_id, owed in to_nodes.items():
            messages = [each.publication.message for each in owed]
            self._reaching.post(node_id, messages, partial(self._on_sent, owed), is_work=True)
        for queue, owed in replies.items():
            self._post_together(queue, owed)

    def _post_together(self, queue: str, owed: list[Owed]) -> None:
        """To a session, which reads bundles."""
        at = 0
        for message, count in packed([each.publication.message for each in owed]):
            together, at = owed[at : at + count], at + count
            if count == 1:
                self._post_alone(together[0])
            else:
                mandatory = together[0].publication.mandatory
                publication = Publication(message=message, key=queue, mandatory=mandatory)
                post(self._broker, publication, partial(self._on_outcome, together), later=True)

    def _post_alone(self, owed: Owed) -> None:
        post(self._broker, owed.publication, partial(self._on_outcome, [owed]), later=True)

    def _on_sent(self, owed: Sequence[Owed], places: range, outcome: PublishOutcome) -> None:
        self._on_outcome(owed if len(places) == len(owed) else owed[places.start : places.stop], outcome)

    def _on_outcome(self, owed: Sequence[Owed], outcome: PublishOutcome) -> None:
        if outcome is None:
            self._stats.sent += len(owed)
            self._pay(owed)
        elif not is_hopeless(outcome):
            self._stats.not_sent += len(owed)
            for each in owed:
                self._loop.call_later(REPEAT_AFTER_S, self._send_again, each)
        else:
            for each in owed:
                self._give_up(each, outcome)

    def _send_again(self, owed: Owed) -> None:
        if self._is_stopped or self._loop.time() >= self._in_hand[owed.key]:
            self._drop([owed])
        else:
            self._send_soon(owed)

    def _give_up(self, owed: Owed, outcome: PublishOutcome) -> None:
        if owed.publication.exchange == topology.NODE_UNICAST:
            self._take_back(owed, outcome)
        else:  # a caller that is gone can ask by the task's id
            log.info("message_to_nobody", key=owed.publication.key, reason=str(outcome))
            self._pay([owed])

    def _take_back(self, owed: Owed, outcome: PublishOutcome) -> None:
        """The node has no queue, or no message can carry this to it."""
        request = sapparchi.parse_request_id(owed.publication.message.message_id or "")
        if request is None:
            self._pay([owed])
            return
        task_id, step, attempt, send = request
        move: StepLost | StepEnd
        if isinstance(outcome, Unroutable):
            why = "nobody listens for it there"
            move = StepLost(task_id=TaskId(task_id), step=step, attempt=attempt, send=send, why=why, now_ms=now_ms())
        else:
            move = StepEnd(
                task_id=TaskId(task_id),
                step=step,
                attempt=attempt,
                send=send,
                outcome=Outcome.REFUSED,
                output=b"null",
                error=str(outcome),
                now_ms=now_ms(),
            )
        self._moving.post(move, partial(self._on_taken_back, owed, outcome))

    def _on_taken_back(self, owed: Owed, outcome: PublishOutcome, answer: Moved | CanoaError) -> None:
        if isinstance(answer, CanoaError) and not is_lasting(answer):
            self._loop.call_later(REPEAT_AFTER_S, self._take_back, owed, outcome)
        else:
            self._pay([owed])

    def _pay(self, owed: Sequence[Owed]) -> None:
        self._moving.pay([each.key for each in owed])
        self._drop(owed)

    def _drop(self, owed: Sequence[Owed]) -> None:
        for each in owed:
            self._in_hand.pop(each.key, None)
        if self._is_stopped and not self._in_hand:
            self._all_sent.set()
        while self._held_back and len(self._in_hand) < MAX_IN_HAND:
            self._held_back.popleft()()


def _is_reply(publication: Publication) -> bool:
    return not publication.exchange and publication.key.startswith(topology.REPLY_PREFIX)


def _node_of(publication: Publication) -> NodeId:
    return NodeId(str(publication.message.headers.get(sapparchi.NODE_ID)))
