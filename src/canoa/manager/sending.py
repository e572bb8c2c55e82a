"""Sends what moves owe, and says so; finds what a manager that died did not get to send.

Twice is harmless: a node's answer counts once, and callers take the first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from canoa.broker import topology
from canoa.errors import CanoaError, Unroutable
from canoa.execution.outcome import Outcome
from canoa.execution.step_moves import StepEnd, StepLost
from canoa.logs import get_logger
from canoa.recorder.posting import is_hopeless, post
from canoa.recorder.repeating import REPEAT_AFTER_S, is_lasting
from canoa.recorder.times import now_ms
from canoa.store.routed_port import HOLD_OWED_MS
from canoa.vocabulary import TaskId
from canoa.wire.sapparchi import parse_request_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from canoa.broker.port import Broker, PublishOutcome
    from canoa.manager.metrics import ManagerStats
    from canoa.manager.moving import Moving
    from canoa.store.routed_port import Moved, Owed, RoutedStore

log = get_logger(__name__)

LOOK_EVERY_S: Final = 2.0
"""How soon a manager finds what another one left behind, once nobody holds it."""

PAGE: Final = 500

KEEP_TRYING_S: Final = HOLD_OWED_MS / 1000
"""Then whoever looks for what is left takes it over, if it is owed still."""

STOP_WITHIN_S: Final = 2.0

MAX_IN_HAND: Final = 5_000
"""Messages without an answer from the broker before deliveries are acknowledged later: a broker that takes more slowly
than it gives must not fill our memory."""


class Sender:
    def __init__(self, broker: Broker, store: RoutedStore, moving: Moving, *, stats: ManagerStats) -> None:
        self._broker = broker
        self._store = store
        self._moving = moving
        self._stats = stats
        self._loop = asyncio.get_running_loop()
        self._in_hand: dict[str, float] = {}  # until when it is tried, by the loop's clock
        self._held_back: deque[Callable[[], object]] = deque()
        self._is_stopped = False
        self._all_sent = asyncio.Event()  # after `stop`

    @property
    def in_hand(self) -> int:
        """What the broker has not answered for."""
        return len(self._in_hand)

    def send(self, owed: Iterable[Owed]) -> None:
        until_s = self._loop.time() + KEEP_TRYING_S
        for each in owed:
            if each.key not in self._in_hand:
                self._in_hand[each.key] = until_s
                self._post(each)

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
        self._is_stopped = True
        if self._in_hand:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_WITHIN_S):
                    await self._all_sent.wait()

    def _post(self, owed: Owed) -> None:
        if self._is_stopped or self._loop.time() >= self._in_hand[owed.key]:
            self._drop(owed)
        else:
            post(self._broker, owed.publication, partial(self._on_outcome, owed))

    def _on_outcome(self, owed: Owed, outcome: PublishOutcome) -> None:
        if outcome is None:
            self._stats.sent += 1
            self._pay(owed)
        elif not is_hopeless(outcome):
            self._stats.not_sent += 1
            self._loop.call_later(REPEAT_AFTER_S, self._post, owed)
        elif owed.publication.exchange == topology.NODE_UNICAST:
            self._take_back(owed, outcome)
        else:  # a caller that is gone can ask by the task's id
            log.info("message_to_nobody", key=owed.publication.key, reason=str(outcome))
            self._pay(owed)

    def _take_back(self, owed: Owed, outcome: PublishOutcome) -> None:
        """The node has no queue, or no message can carry this to it."""
        request = parse_request_id(owed.publication.message.message_id or "")
        if request is None:
            self._pay(owed)
            return
        task_id, step, attempt, send = request
        move: StepLost | StepEnd
        if isinstance(outcome, Unroutable):
            why = "its node has no queue"
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
            self._pay(owed)

    def _pay(self, owed: Owed) -> None:
        self._moving.pay(owed.key)
        self._drop(owed)

    def _drop(self, owed: Owed) -> None:
        self._in_hand.pop(owed.key, None)
        if self._is_stopped and not self._in_hand:
            self._all_sent.set()
        while self._held_back and len(self._in_hand) < MAX_IN_HAND:
            self._held_back.popleft()()
