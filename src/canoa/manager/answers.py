"""What nodes answer, as moves. Nothing in an answer is trusted: it counts only for the attempt that is out.

Late, double and foreign ones change nothing, and are counted. What cannot be read, but says what it answers, ends its
attempt: to wait for another answer would tell nobody why.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.broker.direct import DirectDelivery
from canoa.clock import now_ms
from canoa.errors import CanoaError, PayloadTooLarge, Undecodable
from canoa.execution.outcome import OK, Outcome
from canoa.execution.plan_inputs import sound
from canoa.execution.step_moves import StepEnd, StepLost
from canoa.logs import get_logger
from canoa.manager.opening import Opener
from canoa.manager.reading import as_said, envelope, part, past_ms, text
from canoa.repeating import REPEAT_AFTER_S, is_lasting
from canoa.vocabulary import TaskId
from canoa.wire import result, sapparchi
from canoa.wire.ids import is_usable_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from canoa.broker.port import Delivery, HeaderValue, Message
    from canoa.manager.links import Links
    from canoa.manager.metrics import ManagerStats
    from canoa.manager.moving import Moving
    from canoa.manager.sending import Sender
    from canoa.store.routed_port import Moved

log = get_logger(__name__)

FOREIGN: Final = "foreign"
MALFORMED: Final = "malformed"
CANARY: Final = "canary"


class _Identified(msgspec.Struct):
    """The least of an answer."""

    request_id: str = msgspec.field(name="requestID", default="")


_errors = msgspec.json.Decoder(sapparchi.NodeError)
_ids = msgspec.json.Decoder(_Identified)
_ENDS: Final = {each.value: each for each in Outcome if each is not Outcome.RETRIED}


class Foreign(Undecodable):
    """An answer to a question that no manager of ours asked, or to a canary."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"no manager of ours made requestID {request_id!r:.80}")
        self.request_id = request_id


class Unreadable(Undecodable):
    """The data is no JSON. `end`: of its attempt, which failed: to wait for another answer would tell nobody why."""

    def __init__(self, why: str, end: StepEnd) -> None:
        super().__init__(why)
        self.end = end


class Answers:
    """`limit_bytes`: of what a step gives. `links`: counts what comes. `on_canary` hears of canaries that were
    answered."""

    def __init__(
        self,
        moving: Moving,
        sender: Sender,
        *,
        stats: ManagerStats,
        links: Links,
        limit_bytes: int,
        on_canary: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._moving = moving
        self._sender = sender
        self._stats = stats
        self._links = links
        self._limit_bytes = limit_bytes
        self._on_canary = on_canary
        self._loop = asyncio.get_running_loop()
        self._opener = Opener(self._take, self._refuse)

    def on_delivery(self, delivery: Delivery) -> None:
        self._opener.on_delivery(delivery)

    def stop(self) -> None:
        """What is in hand is still written; bundles that are not open yet are left to other managers."""
        self._opener.stop()

    def _take(self, delivery: Delivery) -> None:
        try:
            move = step_result(as_said(delivery.message), now_ms(), limit_bytes=self._limit_bytes)
        except Foreign as exc:
            self._take_foreign(delivery, exc)
        except CanoaError as exc:
            self._refuse(delivery, exc)
        else:
            self._write(delivery, move)

    def _take_foreign(self, delivery: Delivery, foreign: Foreign) -> None:
        if sapparchi.canary_node(foreign.request_id) is None:
            self._refuse(delivery, foreign)
            return
        self._stats.answered(CANARY)
        self._on_canary(foreign.request_id)
        delivery.settle()

    def _refuse(self, delivery: Delivery, error: CanoaError) -> None:
        verdict = FOREIGN if isinstance(error, Foreign) else MALFORMED
        if isinstance(delivery, DirectDelivery) and verdict == MALFORMED:
            delivery.error = error  # whoever brought it waits for an answer
        log.warning("step_result_refused", verdict=verdict, reason=str(error))
        move = None
        if isinstance(error, Unreadable):
            move = error.end
        elif verdict == MALFORMED:
            move = refused_result(delivery.message, error, now_ms(), limit_bytes=self._limit_bytes)
        if move is None:
            self._stats.answered(verdict)
            delivery.settle()
        else:
            self._write(delivery, move, counted_as=verdict)

    def _write(self, delivery: Delivery, move: StepEnd | StepLost, *, counted_as: str | None = None) -> None:
        if not delivery.is_settled:  # its link is gone: another manager has it
            self._moving.post(move, partial(self._on_answer, delivery, move, counted_as))

    def _on_answer(
        self, delivery: Delivery, move: StepEnd | StepLost, counted_as: str | None, answer: Moved | CanoaError
    ) -> None:
        if not isinstance(answer, CanoaError):
            self._stats.answered(counted_as or answer.verdict)
            if answer.node_id is not None:  # of what is late or double nobody can say for sure whose it is
                self._links.received(answer.node_id, delivery)
        elif is_lasting(answer):
            self._stats.answered(MALFORMED)
            log.error("step_result_not_kept", task_id=move.task_id, reason=str(answer))
        else:
            self._stats.not_written(answer)
            self._loop.call_later(REPEAT_AFTER_S, partial(self._write, delivery, move, counted_as=counted_as))
            return
        self._sender.when_roomy(delivery.settle)


def step_result(message: Message, now_ms: int, *, limit_bytes: int) -> StepEnd | StepLost:
    """Raises `Foreign`, `Unreadable`, another `Undecodable`, or `PayloadTooLarge`."""
    answer = sapparchi.decode(envelope(message, limit_bytes), sapparchi.NodeMessage)
    request = _asked(answer.request_id)
    if request is None:
        raise Foreign(answer.request_id)
    headers = message.headers
    status = headers.get(sapparchi.STATUS)
    if status == sapparchi.RETURNED:
        task_id, step, attempt, send = request
        why = text(headers.get(result.NODE)) or "its node"
        return StepLost(
            task_id=TaskId(task_id),
            step=step,
            attempt=attempt,
            send=send,
            why=f"{why} gave it back",
            is_returned=True,
            now_ms=now_ms,
        )
    try:
        output = sound(answer.message_data)
    except Undecodable as exc:
        why = f"its node answered with data that cannot be read: {exc}"
        end = _end(request, Outcome.FAILED, b"null", headers, now_ms)
        raise Unreadable(why, _explained(end, why, headers)) from exc
    outcome, error = _outcome(status, answer.message_data)
    if len(output) > limit_bytes:
        raise PayloadTooLarge("messageData", len(output), limit_bytes)
    end = _end(request, outcome, output, headers, now_ms)
    return end if outcome is OK else _explained(end, error, headers)


def _end(
    request: tuple[str, int, int, int],
    outcome: Outcome,
    output: bytes,
    headers: Mapping[str, HeaderValue],
    now_ms: int,
) -> StepEnd:
    task_id, step, attempt, send = request
    return StepEnd(
        task_id=TaskId(task_id),
        step=step,
        attempt=attempt,
        send=send,
        outcome=outcome,
        output=output,
        now_ms=now_ms,
        started_ms=past_ms(headers.get(result.STARTED), now_ms),
        ended_ms=past_ms(headers.get(sapparchi.ENDED), now_ms),
    )


def _explained(end: StepEnd, error: str | None, headers: Mapping[str, HeaderValue]) -> StepEnd:
    return msgspec.structs.replace(
        end,
        error=error,
        is_final=headers.get(sapparchi.NO_RETRY) is True,
        error_type=text(headers.get(sapparchi.ERROR_TYPE))[:200],
        traceback=text(headers.get(result.TRACEBACK))[-result.MAX_TRACEBACK_CHARS :],
    )


def refused_result(message: Message, error: CanoaError, now_ms: int, *, limit_bytes: int) -> StepEnd | None:
    """The end of the attempt that such an answer is about; None where it does not say which. Refused: the next answer
    would be no other."""
    said = part(message, _ids, limit_bytes=limit_bytes)
    named = [said.request_id] if said else [message.message_id or "", message.correlation_id or ""]
    request = next(filter(None, map(_asked, named)), None)
    if request is None:
        return None
    task_id, step, attempt, send = request
    return StepEnd(
        task_id=TaskId(task_id),
        step=step,
        attempt=attempt,
        send=send,
        outcome=Outcome.REFUSED,
        output=b"null",
        now_ms=now_ms,
        error=f"its node's answer cannot be taken: {text(str(error))}"[: result.MAX_ERROR_CHARS],
    )


def _asked(request_id: str) -> tuple[str, int, int, int] | None:
    request = sapparchi.parse_request_id(request_id)
    return request if request is not None and is_usable_id(request[0]) else None


def _outcome(status: object, data: str) -> tuple[Outcome, str | None]:
    """Without a status it is a success, unless it says nothing but an error."""
    if status is None:
        error = _error(data)
        return (OK, None) if error is None else (Outcome.FAILED, error)
    outcome = _ENDS.get(status) if isinstance(status, str) else None
    if outcome is None:
        raise Undecodable(f"header {sapparchi.STATUS} is {status!r:.40}, which is no end of an attempt")
    return outcome, None if outcome is OK else _error(data) or "no reason given"


def _error(data: str) -> str | None:
    """Of an object whose only key is `error`."""
    if not data.lstrip().startswith("{"):
        return None
    try:
        said = _errors.decode(data).error
    except msgspec.MsgspecError:
        return None
    words = said if isinstance(said, str) else msgspec.json.encode(said).decode()
    return text(words)[: result.MAX_ERROR_CHARS]
