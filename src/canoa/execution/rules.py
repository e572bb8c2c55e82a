"""What to do with a delivered task, and with an attempt that ended.

Pure: facts, time and chance come in as arguments, one intent comes out, and whoever asked carries it out. Workers,
managers and peers follow the same rules. Times are seconds of any one clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, assert_never

import msgspec

from canoa.execution.backoff import delay_s as backoff_delay_s
from canoa.execution.outcome import Outcome

if TYPE_CHECKING:
    from canoa.execution.policy import Policy

# --- A delivery -------------------------------------------------------------------------------------


class Received(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is known about a task when it arrives."""

    attempt: int = 1
    crashes: int = 0  # redeliveries counted so far, from its header
    redelivered: bool = False  # the broker gave this very message out before and got no answer
    is_suspect: bool = False  # it came from the suspect queue: whatever it did last, it did alone
    due_s: float | None = None  # when it may start
    deadline_s: float | None = None  # when it must have started
    is_cancelled: bool = False


class Run(msgspec.Struct, frozen=True, gc=False):
    """Run it. `alone`: with nothing else in this worker, so that a crash has one possible cause."""

    alone: bool
    time_limit_s: float | None


class Recount(msgspec.Struct, frozen=True, gc=False):
    """Publish it again with this count, wait for the confirm, then acknowledge this one: to the suspect queue, or to
    the action's own."""

    crashes: int
    as_suspect: bool


class Poison(msgspec.Struct, frozen=True, gc=False):
    """It ends workers: to the dead letters."""

    crashes: int


class Expire(msgspec.Struct, frozen=True, gc=False):
    """Its deadline passed before it started."""


class Skip(msgspec.Struct, frozen=True, gc=False):
    """It was cancelled; nobody waits for it."""


class Wait(msgspec.Struct, frozen=True, gc=False):
    """It may not start yet: let it wait in the broker for `wait_s`, or in parts of that. No attempt, and no crash."""

    wait_s: float


Intent: TypeAlias = Run | Recount | Poison | Expire | Skip | Wait


def on_delivery(policy: Policy, task: Received, now_s: float) -> Intent:
    """The first row that fits:

    | the task is                                        | and                            | intent                     |
    |----------------------------------------------------|--------------------------------|----------------------------|
    | cancelled                                          |                                | `Skip`                     |
    | at or past its deadline                            |                                | `Expire`                   |
    | not due yet                                        |                                | `Wait`                     |
    | delivered first, on the action's queue             |                                | `Run` in company           |
    | delivered first, on the suspect queue              |                                | `Run` alone                |
    | redelivered                                        | `max_crashes` is 1             | `Poison`                   |
    | redelivered on the action's queue                  | `crashes` + 1 is below 2 or    | `Recount` + 1, same queue  |
    |                                                    | below `max_crashes` - 1        |                            |
    | redelivered on the action's queue                  | otherwise                      | `Recount` + 1, as suspect  |
    | redelivered on the suspect queue                   | `crashes` + 1 < `max_crashes`  | `Recount` + 1, as suspect  |
    | redelivered on the suspect queue                   | `crashes` + 1 >= `max_crashes` | `Poison`                   |

    A redelivered message may have ended its worker. Or it only waited in the hands of one that something else ended, or
    the link was cut. So a first time proves nothing, and the task runs in company again: a broker restart redelivers
    all that was in flight, and running that one by one would take an hour. One crash before the last that is allowed,
    and never before its second, it is a suspect and runs alone, and only a crash of such a run can poison it: with
    `max_crashes` of 2 that is the third crash. A policy of `max_crashes=1` asks that nothing is ever run twice, and
    gets that, at the price of the bystanders.
    """
    if task.is_cancelled:
        return Skip()
    if task.deadline_s is not None and now_s >= task.deadline_s:
        return Expire()
    if task.due_s is not None and now_s < task.due_s:
        return Wait(task.due_s - now_s)
    if not task.redelivered:
        return Run(task.is_suspect, policy.timeout_s)
    return _on_redelivery(policy, task)


def _on_redelivery(policy: Policy, task: Received) -> Recount | Poison:
    crashes = task.crashes + 1
    is_proven = task.is_suspect and crashes >= policy.max_crashes
    if is_proven or policy.max_crashes == 1:
        return Poison(crashes)
    return Recount(crashes, task.is_suspect or crashes >= max(2, policy.max_crashes - 1))


# --- The end of an attempt --------------------------------------------------------------------------


class Succeeded(msgspec.Struct, frozen=True, gc=False):
    """It returned, and its result can be sent."""


class Raised(msgspec.Struct, frozen=True, gc=False):
    """It raised. Not `retryable`: the action said that another try is pointless."""

    retryable: bool = True


class TimedOut(msgspec.Struct, frozen=True, gc=False):
    """It ran into its time limit. Tried again like any failure."""


class Cancelled(msgspec.Struct, frozen=True, gc=False):
    """It was interrupted because its caller no longer wants it."""


class Refused(msgspec.Struct, frozen=True, gc=False):
    """Its arguments could not be used, or its result not be sent. The next attempt would end the same."""


End: TypeAlias = Succeeded | Raised | TimedOut | Cancelled | Refused


class Finish(msgspec.Struct, frozen=True, gc=False):
    """Send the result."""


class Retry(msgspec.Struct, frozen=True, gc=False):
    """Let it wait for about `delay_s`, then run as this `attempt`."""

    attempt: int
    delay_s: float


class Fail(msgspec.Struct, frozen=True, gc=False):
    """Send the failure. This was the last attempt."""

    kind: Literal[Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CANCELLED, Outcome.REFUSED]


EndIntent: TypeAlias = Finish | Retry | Fail


def on_end(policy: Policy, attempt: int, end: End, now_s: float, *, deadline_s: float | None, rand: float) -> EndIntent:
    """Finish, try again, or give up. `attempt` is the one that ended, counted from 1; `rand` is in [0, 1).

    `retries=n` allows n attempts after the first. One that would start at or after the deadline is not made: its caller
    hears of the failure now, not of an expiry later.
    """
    match end:
        case Succeeded():
            return Finish()
        case Cancelled():
            return Fail(Outcome.CANCELLED)
        case Refused():
            return Fail(Outcome.REFUSED)
        case Raised(retryable=False):
            return Fail(Outcome.FAILED)
        case Raised() | TimedOut():
            retry = _retry(policy, attempt, rand)
            if retry is None or (deadline_s is not None and now_s + retry.delay_s >= deadline_s):
                return Fail(Outcome.TIMED_OUT if isinstance(end, TimedOut) else Outcome.FAILED)
            return retry
        case _:
            assert_never(end)


def _retry(policy: Policy, attempt: int, rand: float) -> Retry | None:
    if attempt > policy.retries:
        return None
    return Retry(attempt + 1, backoff_delay_s(policy.backoff, attempt, rand))
