"""Who waits for which result, and what happens to the results that come.

A handle leaves here by its first answer, by an error, or with the session; whatever comes later counts as a duplicate.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from canoa import telemetry
from canoa.client.metrics import METRICS
from canoa.errors import CanoaError, DeliveryUnknown, TaskCancelled, TaskRefused, WrongUse
from canoa.execution.outcome import Outcome
from canoa.logs import get_logger
from canoa.vocabulary import TaskId
from canoa.wire import packing, result
from canoa.wire.bundle import is_bundle, parts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canoa.broker.port import Consumer, Delivery, Message, Publication
    from canoa.client.handle import Handle

log = get_logger(__name__)

SETTLE_AFTER_S: Final = 0.1
"""How long replies are in hand before the broker hears that they came. Longer lets more of them share one message, and
keeps them longer in the broker's memory."""

SETTLE_AT: Final = 250
SETTLE_AT_BYTES: Final = 1024 * 1024
"""As many, or as much of them, are not kept in hand any longer: the broker sends no more than a thousand ahead, and
holds what it has sent."""


_OK: Final = Outcome.OK.value


class Kept:
    """What a restarted broker would have forgotten, if it had it: what was never confirmed is still being sent."""

    __slots__ = ("is_taken", "publication")

    def __init__(self, publication: Publication) -> None:
        self.publication = publication
        self.is_taken = False


Waiting: TypeAlias = "tuple[Handle[Any], Any, Kept | None]"


class Replies:
    def __init__(self, limit_bytes: int) -> None:
        self.consumer: Consumer | None = None
        self._loop = asyncio.get_running_loop()
        self._limit_bytes = limit_bytes
        self._waiting: dict[TaskId, Waiting] = {}
        self._others: dict[TaskId, list[Waiting]] = {}  # of the same task, which one idempotency key may have
        self._unsettled: Delivery | None = None  # the last one, and with it all before
        self._unsettled_count = 0
        self._unsettled_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, handle: Handle[Any], codec: Any, kept: Kept | None) -> None:
        """`codec`: of the result's type; None takes whatever it is. `kept`: what to send again after a restart."""
        if handle.id in self._waiting:
            self._others.setdefault(handle.id, []).append((handle, codec, kept))
        else:
            self._waiting[handle.id] = (handle, codec, kept)

    def taken(self, handle: Handle[Any]) -> None:
        """The broker has it."""
        waiting = self._waiting.get(handle.id)
        if waiting is not None and waiting[2] is not None:
            waiting[2].is_taken = True

    def forgotten(self) -> list[tuple[Handle[Any], Publication]]:
        """What a broker took that has been restarted since. Too much of it is harmless, too little is not."""
        kept = [(handle, each) for handle, _, each in self._waiting.values() if each is not None]
        return [(handle, each.publication) for handle, each in kept if each.is_taken]

    def fail_submitted(self, why: str) -> None:
        """Those whose results can no longer come, and that are not sent again."""
        for handle, _, kept in self._all():
            if kept is None:
                self.drop(handle, DeliveryUnknown(f"{why} before task {handle.id} ({handle.action}) answered"))

    def drop(self, handle: Handle[Any], error: CanoaError) -> None:
        """It ends with this error, and what may still come for it is for nobody."""
        of_the_task = [self._waiting.pop(handle.id, None), *self._others.pop(handle.id, ())]
        for each in of_the_task:
            if each is not None and each[0] is not handle:
                self.expect(*each)
        handle.fail(error)

    def drop_unseen(self, handles: Iterable[Handle[Any]]) -> None:
        """Nobody holds them, since their submit or call was abandoned or refused: they would wait here for ever."""
        for handle in handles:
            text = f"nobody waits any longer for task {handle.id} ({handle.action})"
            abandoned = TaskCancelled(text, task_id=handle.id)
            telemetry.sent(handle, abandoned)
            self.drop(handle, abandoned)

    def fail_all(self, why: str) -> None:
        waiting = self._all()
        self._waiting, self._others = {}, {}
        for handle, _, _ in waiting:
            handle.fail(DeliveryUnknown(f"{why} before task {handle.id} ({handle.action}) answered"))

    def on_reply(self, delivery: Delivery) -> None:
        """Replies are acknowledged together, a moment later: whoever waits for one goes first."""
        if self._unsettled is None:
            self._loop.call_later(SETTLE_AFTER_S, self.settle)
        self._unsettled = delivery
        self._unsettled_count += 1
        self._unsettled_bytes += len(delivery.message.body)
        if is_bundle(delivery.message):
            self._take_all(delivery.message)
        else:
            self._take(delivery.message)
        if self._unsettled_count >= SETTLE_AT or self._unsettled_bytes >= SETTLE_AT_BYTES:
            self.settle()

    def _take_all(self, bundle: Message) -> None:
        try:
            answers = parts(bundle)
        except WrongUse as exc:
            METRICS.refused += 1
            log.warning("answers_refused", reason=str(exc))
            return
        for answer in answers:
            self._take(answer)

    def _take(self, message: Message) -> None:
        task_id = TaskId(message.correlation_id or "")
        waiting = self._waiting.pop(task_id, None)
        if waiting is None:
            METRICS.duplicates += 1
            return
        self._resolve(waiting[0], waiting[1], message)
        if self._others:
            for handle, codec, _ in self._others.pop(task_id, ()):
                self._resolve(handle, codec, message)

    def settle(self) -> None:
        last, self._unsettled = self._unsettled, None
        self._unsettled_count = self._unsettled_bytes = 0
        if last is not None and self.consumer is not None:
            self.consumer.settle_through(last)

    def _all(self) -> list[Waiting]:
        return [*self._waiting.values(), *(each for others in self._others.values() for each in others)]

    def _resolve(self, handle: Handle[Any], codec: Any, message: Message) -> None:
        if message.type != _OK:
            handle.fail(result.error_from(message, handle.id))
            return
        try:
            body = packing.unpack(message, self._limit_bytes)
            handle.succeed((codec or packing.ANY).decode(body, message.content_type))
        except WrongUse as exc:
            text = f"task {handle.id} ({handle.action}) answered with a result that cannot be used: {exc}"
            handle.fail(TaskRefused(text, task_id=handle.id))
