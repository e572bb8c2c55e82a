"""Single rules of `steps.py`: what an answer means, how long to wait, what a move says about itself. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.execution import rules
from canoa.execution.outcome import Outcome
from canoa.execution.step_moves import StepEnd, StepLost, Verdict
from canoa.execution.step_records import LOST, RETURNED
from canoa.vocabulary import ActionName, NodeId

if TYPE_CHECKING:
    from canoa.execution.step_moves import AttemptRow
    from canoa.execution.step_records import StepRecord

LOOK_MS: Final = 3_600_000
"""No timer is set further ahead: a longer wait is looked at in between. So one that is further ahead than twice this
was set by a clock that has gone back since."""

FIRST_LOOK_MS: Final = 200
LAST_LOOK_MS: Final = 5_000
"""Between two looks for a node: as long as it has waited already, within these."""

QUICK_RESENDS: Final = 3
"""Losses of one attempt after which it goes to the next node at once; then it waits between them."""

MAX_LIMIT_MS: Final = 366 * 86_400_000
REPORTED: Final = frozenset({Outcome.POISONED, Outcome.EXPIRED})  # kinds of failure that only nodes know


class Effect(msgspec.Struct, gc=False):
    """What a move did, besides changing rows."""

    verdict: Verdict = Verdict.TAKEN
    sends: list[int] = []  # steps whose attempt is to be sent
    closed: tuple[str, ...] = ()  # request ids that are not to be sent any more
    cancel: tuple[str, ...] = ()  # request ids whose answer nobody wants any more
    freed: tuple[tuple[NodeId, ActionName], ...] = ()  # attempts that ended without their node
    due_ms: list[int] = []
    node_id: NodeId | None = None
    action: ActionName | None = None
    step: str | None = None
    queued_ms: int | None = None
    step_outcome: str | None = None
    took_ms: int | None = None  # from sending to answer, where there was one
    context: tuple[float, ...] = ()  # on which that attempt's node was chosen
    outcome: Outcome | None = None  # of the task, if it ended


def end_of(outcome: Outcome, *, is_final: bool = False) -> rules.End:
    """What a node's answer means for another try. One that it did not start in time is like one that it did not end."""
    if is_final:
        return rules.Raised(retryable=False)
    match outcome:
        case Outcome.OK:
            return rules.Succeeded()
        case Outcome.TIMED_OUT | Outcome.EXPIRED:
            return rules.TimedOut()
        case Outcome.CANCELLED:
            return rules.Cancelled()
        case Outcome.REFUSED:
            return rules.Refused()
        case Outcome.POISONED:
            return rules.Raised(retryable=False)
        case Outcome.FAILED | Outcome.RETRIED:
            return rules.Raised()


def said_by(move: StepEnd | StepLost) -> str:
    if isinstance(move, StepEnd):
        return move.outcome.value
    return RETURNED if move.is_returned else LOST


def look_again_ms(step: StepRecord, now_ms: int) -> int:
    waited_ms = now_ms - (step.ready_ms or now_ms)
    return min(LAST_LOOK_MS, max(FIRST_LOOK_MS, waited_ms))


@lru_cache(1024)
def limit_ms(timeout_s: float, travel_s: float) -> int:
    """How long an attempt may be out."""
    return round(min(MAX_LIMIT_MS, 1000 * (max(0.0, timeout_s) + travel_s)))


def out_for_ms(sent: AttemptRow) -> int:
    return (sent.ended_ms or sent.sent_ms) - sent.sent_ms


def ready_after_ms(ready_ms: int, now_ms: int, back_ms: int, *, is_retry: bool) -> int:
    """When a step that waits is ready, after the clock was set back. A caller's own time for the first attempt holds;
    what was waited for by that clock is waited for as long as it was meant to be."""
    if ready_ms <= now_ms + back_ms:  # it was ready before
        return min(ready_ms, now_ms)
    return ready_ms - back_ms if is_retry else ready_ms


def has_gone_back(due_ms: int | None, now_ms: int) -> bool:
    return due_ms is not None and due_ms > now_ms + 2 * LOOK_MS
