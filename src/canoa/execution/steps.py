"""What happens to the steps of one routed task, and when. Pure: rows and moves in, changed rows and effects out.

A step is BLOCKED until what it waits for has succeeded, WAITING until a node takes it, SENT until an answer or its time
limit, and then ENDED, or WAITING for its next attempt. Every WAITING and every SENT step has a `due_ms`: nothing hangs.
Compensations are BLOCKED until there is something to undo: what that is, and in which order, is in `compensation.py`.
Times are arguments, chance is passed in. Who loads and writes the rows is in `store/routed_ledger.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from canoa.execution import compensation, rules
from canoa.execution.outcome import OK, Outcome
from canoa.execution.policy import Policy
from canoa.execution.step_moves import AttemptRow, StepEnd, StepLost, Verdict
from canoa.execution.step_needs import need_of
from canoa.execution.step_records import (
    BLOCKED,
    ENDED,
    LOST,
    MAX_STORY,
    OPEN,
    RETURNED,
    SENT,
    SKIPPED,
    WAITING,
    Outline,
    StepRecord,
)
from canoa.execution.step_restoring import ANSWERED_WITHIN_MS
from canoa.execution.step_rules import (
    LOOK_MS,
    QUICK_RESENDS,
    REPORTED,
    Effect,
    end_of,
    has_gone_back,
    limit_ms,
    look_again_ms,
    out_for_ms,
    ready_after_ms,
    said_by,
)
from canoa.vocabulary import ActionName, NodeId
from canoa.wire.sapparchi import request_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canoa.execution.step_moves import Choice, Route, StepDue
    from canoa.execution.step_settings import StepSettings

_OK: Final = Outcome.OK.value  # a member's `value` is slow to look up


class Course:
    """One routed task on its way. `steps` are all of its rows, in the outline's order; `is_open` is the task's."""

    def __init__(
        self,
        outline: Outline,
        steps: Sequence[StepRecord],
        *,
        is_open: bool,
        route: Route,
        settings: StepSettings,
        random: Callable[[], float],
        input_bytes: int = 0,
    ) -> None:
        self.outline = outline
        self.steps = steps
        self.is_open = is_open
        self.touched: dict[int, StepRecord] = {}
        self._route = route
        self._settings = settings
        self._random = random
        self._input_bytes = input_bytes
        self._effect: Effect  # of the move in hand

    @property
    def own(self) -> Sequence[StepRecord]:
        """The rows of the plan's own steps, without their compensations."""
        return self.steps[: self.outline.count] if self.outline.undoes else self.steps

    # --- Moves --------------------------------------------------------------------------------------

    def begin(self, now_ms: int, *, not_before_ms: int | None = None) -> Effect:
        """Of new rows. A plan with an action that nobody ever offered is refused before anything runs."""
        self._effect = Effect(action=self.outline.steps[0].action)
        is_known = self._route.is_known
        unknown = [at for at, step in enumerate(self.outline.steps) if not is_known(step.action)]
        for at in unknown:
            self._refuse_unknown(self.outline.own_place(at), self.outline.steps[at].action, now_ms)
        if unknown:
            self._skip([step.step for step in self.own if step.is_open], now_ms)
        else:
            self._start(max(now_ms, not_before_ms or 0), now_ms)
        return self._finished(now_ms)

    def end(self, move: StepEnd) -> Effect:
        step = self._out(move)
        if step is None:
            return self._refused(move)
        self._close(step, _OK if move.outcome is OK else move.outcome.value, move.now_ms, told=move)
        if move.outcome is OK:
            step.output = move.output
            self._end(step.step, OK, None, now_ms=move.now_ms)
        else:
            end = end_of(move.outcome, is_final=move.is_final)
            self._failed(step, move.outcome, end, move.error or move.outcome.value, now_ms=move.now_ms)
        return self._finished(move.now_ms)

    def lose(self, move: StepLost) -> Effect:
        step = self._out(move)
        if step is None:
            return self._refused(move)
        self._close(step, RETURNED if move.is_returned else LOST, move.now_ms, error=move.why)
        self._wait_again(step, move.why, move.now_ms)
        return self._finished(move.now_ms)

    def due(self, move: StepDue, *, is_unsent: bool = False) -> Effect:
        """`is_unsent`: what is out has not left for its node."""
        step = self._at(move.step)
        self._effect = Effect()
        if step is None or not self.is_open or step.due_ms != move.due_ms:
            return Effect(verdict=Verdict.UNKNOWN if step is None else Verdict.LATE)
        self._effect.action = self.outline.steps[step.step].action
        if step.state == SENT:
            is_anew = is_unsent or move.back_ms > 0 or has_gone_back(step.due_ms, move.now_ms)
            self._look_at_sent(step, move.now_ms, is_anew=is_anew)
        else:
            self._look_at_waiting(step, move.now_ms, back_ms=move.back_ms)
        return self._finished(move.now_ms)

    def cancel(self, now_ms: int) -> Effect:
        """What it did is undone. LATE: it has ended, or that goes on already."""
        if not self.is_open or (self.outline.undoes and compensation.is_undoing(self.outline, self.steps)):
            return Effect(verdict=Verdict.LATE)
        self._effect = Effect()
        for step in self.own:
            if step.state == SENT:
                self._effect.cancel += (self._request_id(step),)
                self._free(step)
                self._close(step, Outcome.CANCELLED.value, now_ms)
                self._set_ended(step, Outcome.CANCELLED, compensation.CALLED_OFF, now_ms=now_ms)
        self._skip([step.step for step in self.own if step.is_open], now_ms, why=compensation.CALLED_OFF)
        if self.outline.undoes:
            return self._finished(now_ms)
        self.is_open, self._effect.outcome = False, Outcome.CANCELLED
        return self._effect

    def rerun(self, now_ms: int) -> Effect:
        """What succeeded stays, unless it was undone. LATE: it has not ended, or there is nothing to repeat."""
        if self.is_open or all(step.is_ok for step in self.own):
            return Effect(verdict=Verdict.LATE)
        self._effect = Effect()
        self.is_open = True
        if unfinished := compensation.failed(self.outline, self.steps):
            for step in unfinished:
                self._reset(step)
        else:
            self._run_again(now_ms)
        return self._finished(now_ms)

    def _run_again(self, now_ms: int) -> None:
        for place, at in enumerate(self.outline.undoes, self.outline.count):
            if self.steps[place].is_ok:
                compensation.forget_effects(self.steps[at])
        for place in compensation.to_run_again(self.outline, self.steps):
            self._reset(self.steps[place])
        self._start(now_ms, now_ms)

    def refuse(self, at: int, send: int, *, outcome: Outcome, error: str, now_ms: int) -> Effect | None:
        """What was to be sent cannot be: its input is missing, or its deadline has passed. None: it is not out."""
        step = self.steps[at]
        if not self.is_open or step.state != SENT or step.send != send:
            return None
        self._effect = Effect()
        self._free(step)
        self._close(step, outcome.value, now_ms, error=error)
        self._end(at, outcome, error, now_ms=now_ms)
        return self._finished(now_ms)

    # --- Answers ------------------------------------------------------------------------------------

    def _out(self, move: StepEnd | StepLost) -> StepRecord | None:
        """The step, if the move is about the attempt that is out."""
        step = self._at(move.step)
        if step is None or not self.is_open or step.state != SENT:
            return None
        if step.send != move.send or step.attempt != move.attempt:
            return None
        self._effect = Effect(node_id=step.node_id, action=self.outline.steps[step.step].action)
        return step

    def _refused(self, move: StepEnd | StepLost) -> Effect:
        step = self._at(move.step)
        if step is None:
            return Effect(verdict=Verdict.UNKNOWN)
        story = step.story
        place = len(story) - 1 - (step.send - move.send)
        if not 0 <= place < len(story):
            return Effect(verdict=Verdict.LATE)
        is_same = (story[place].attempt, story[place].outcome) == (move.attempt, said_by(move))
        return Effect(verdict=Verdict.DOUBLE if is_same else Verdict.LATE)

    def _failed(self, step: StepRecord, outcome: Outcome, end: rules.End, error: str, *, now_ms: int) -> None:
        intent = self._after_failure(step, end, now_ms)
        if isinstance(intent, rules.Retry):
            step.attempt = intent.attempt
            step.ready_ms = now_ms + round(intent.delay_s * 1000)
            self._wait(step, step.ready_ms, now_ms)
        else:
            self._end(step.step, outcome if outcome in REPORTED else intent.kind, error, now_ms=now_ms)

    def _after_failure(self, step: StepRecord, end: rules.End, now_ms: int) -> rules.Retry | rules.Fail:
        policy = Policy(retries=max(0, step.retries), backoff=self._settings.backoff)
        intent = rules.on_end(policy, step.attempt, end, now_ms / 1000, deadline_s=None, rand=self._random())
        assert not isinstance(intent, rules.Finish)
        return intent

    # --- Timers -------------------------------------------------------------------------------------

    def _look_at_sent(self, step: StepRecord, now_ms: int, *, is_anew: bool) -> None:
        """`is_anew`: its time begins now: it has not left, or nobody knows when it did."""
        if step.node_id is None:
            self._look_at_restored(step, now_ms, is_anew=is_anew)
            return
        if is_anew:
            self._send_from(step, now_ms)
        limit_ms = self._limit_now_ms(step)
        if limit_ms is None or now_ms < limit_ms:
            self._arm(step, limit_ms, now_ms)
            return
        self._effect.node_id = step.node_id
        self._effect.cancel += (self._request_id(step),)
        error = f"node {step.node_id} did not answer in time"
        self._close(step, Outcome.TIMED_OUT.value, now_ms, error=error)
        self._failed(step, Outcome.TIMED_OUT, rules.TimedOut(), error, now_ms=now_ms)

    def _look_at_restored(self, step: StepRecord, now_ms: int, *, is_anew: bool) -> None:
        """Nobody knows where it is: see `step_restoring.py`."""
        if is_anew:
            self._arm(step, now_ms + ANSWERED_WITHIN_MS, now_ms)
            return
        self._effect.cancel += (self._request_id(step),)
        self._close(step, RETURNED, now_ms, error="nobody answered")
        self._dispatch(step, now_ms)

    def _send_from(self, step: StepRecord, now_ms: int) -> None:
        """Its time begins anew."""
        last = step.story[-1]
        if step.limit_ms is not None:
            step.limit_ms = now_ms + max(0, step.limit_ms - last.sent_ms)
        step.story[-1] = msgspec.structs.replace(last, sent_ms=now_ms)

    def _limit_now_ms(self, step: StepRecord) -> int | None:
        """A step stands in its node's queue while others run. So its time begins anew with every answer of its node,
        within reason, and with the first look of a manager, who cannot know what was answered before."""
        if step.limit_ms is None:
            return None
        sent_ms = step.story[-1].sent_ms
        queued_until_ms = sent_ms + round(self._settings.queue_timeout_s * 1000)
        since_ms = self._route.since_ms()
        answered_ms = self._route.answered_ms(NodeId(step.node_id or "")) or sent_ms
        began_ms = max(sent_ms, min(answered_ms, queued_until_ms), since_ms)
        return step.limit_ms + began_ms - sent_ms

    def _look_at_waiting(self, step: StepRecord, now_ms: int, *, back_ms: int) -> None:
        if step.ready_ms is None or has_gone_back(step.due_ms, now_ms):
            step.ready_ms = now_ms
        elif back_ms:
            step.ready_ms = ready_after_ms(step.ready_ms, now_ms, back_ms, is_retry=bool(step.story))
        if now_ms < step.ready_ms:
            self._arm(step, step.ready_ms, now_ms)
        else:
            self._dispatch(step, now_ms)

    def _wait(self, step: StepRecord, until_ms: int, now_ms: int) -> None:
        step.state = WAITING
        self._arm(step, until_ms, now_ms)

    def _arm(self, step: StepRecord, at_ms: int | None, now_ms: int) -> None:
        latest_ms = now_ms + LOOK_MS
        step.due_ms = latest_ms if at_ms is None else min(at_ms, latest_ms)
        self._effect.due_ms.append(step.due_ms)
        self.touched[step.step] = step

    # --- Nodes --------------------------------------------------------------------------------------

    def _start(self, at_ms: int, now_ms: int) -> None:
        """Whatever waits for nothing, or only for what has succeeded."""
        for at, step in enumerate(self.own):
            if step.state == BLOCKED and self._is_unlocked(at):
                self._make_ready(step, at_ms, now_ms)

    def _make_ready(self, step: StepRecord, at_ms: int, now_ms: int) -> None:
        step.ready_ms, step.attempt = at_ms, 1
        if at_ms > now_ms:
            self._wait(step, at_ms, now_ms)
        else:
            self._dispatch(step, now_ms)

    def _dispatch(self, step: StepRecord, now_ms: int) -> None:
        action = self.outline.steps[step.step].action
        need = need_of(self.outline, self.steps, step, now_ms, input_bytes=self._input_bytes)
        choice = self._route.choose(need)
        if choice is not None:
            self._send(step, choice, now_ms)
        elif not self._route.is_known(action):
            self._refuse_unknown(step.step, action, now_ms)
        elif self._has_waited_too_long(step, now_ms):
            self._expire(step, f"no node could take {action}", now_ms)
        else:
            self._wait(step, now_ms + look_again_ms(step, now_ms), now_ms)

    def _send(self, step: StepRecord, choice: Choice, now_ms: int) -> None:
        planned = self.outline.steps[step.step]
        timeout_s = choice.timeout_s if planned.timeout_s is None else planned.timeout_s
        step.state = SENT
        step.send += 1
        step.node_id = choice.node_id
        step.retries = choice.retries if planned.retries is None else planned.retries
        step.limit_ms = None if timeout_s is None else now_ms + limit_ms(timeout_s, self._settings.travel_s)
        sent = AttemptRow(
            attempt=step.attempt,
            node_id=choice.node_id,
            why=choice.why,
            passed=choice.passed,
            sent_ms=now_ms,
            context=choice.context,
        )
        step.story.append(sent)
        if len(step.story) > MAX_STORY:
            del step.story[:-MAX_STORY]
        self._arm(step, step.limit_ms, now_ms)
        self._effect.sends.append(step.step)

    def _wait_again(self, step: StepRecord, why: str, now_ms: int) -> None:
        """After a loss. One soon after sending says that the way is closed, and the wait goes on; a late one may be
        the step's own doing, and begins a new wait, but not for ever."""
        story = step.story
        travel_ms = self._settings.travel_s * 1000
        of_attempt = [each for each in story if each.attempt == step.attempt and each.outcome in (LOST, RETURNED)]
        late = [each for each in of_attempt if each.outcome == LOST and out_for_ms(each) >= travel_ms]
        if out_for_ms(story[-1]) >= travel_ms:
            step.ready_ms = now_ms
        if len(late) > self._settings.max_losses:
            error = f"{len(late)} nodes went away with it, the last one: {why}"
            self._end(step.step, Outcome.POISONED, error, now_ms=now_ms)
        elif self._has_waited_too_long(step, now_ms):
            self._expire(step, f"it was lost on its way, the last time: {why}", now_ms)
        elif len(of_attempt) <= QUICK_RESENDS:
            self._dispatch(step, now_ms)
        else:
            self._wait(step, now_ms + look_again_ms(step, now_ms), now_ms)

    def _has_waited_too_long(self, step: StepRecord, now_ms: int) -> bool:
        """As far as a manager was there to look for a node."""
        since_ms = max(step.ready_ms or now_ms, self._route.since_ms())
        return now_ms - since_ms >= self._settings.queue_timeout_s * 1000

    def _expire(self, step: StepRecord, why: str, now_ms: int) -> None:
        error = f"{why} within {self._settings.queue_timeout_s:g} s"
        self._end(step.step, Outcome.EXPIRED, error, now_ms=now_ms)

    def _refuse_unknown(self, at: int, action: ActionName, now_ms: int) -> None:
        self._end(at, Outcome.REFUSED, str(self._route.unknown(action)), now_ms=now_ms)

    # --- Ends ---------------------------------------------------------------------------------------

    def _close(
        self, step: StepRecord, outcome: str, now_ms: int, *, error: str | None = None, told: StepEnd | None = None
    ) -> None:
        """The attempt that is out, is not any more."""
        last = step.story[-1]
        step.story[-1] = AttemptRow(
            attempt=last.attempt,
            node_id=last.node_id,
            why=last.why,
            passed=last.passed,
            sent_ms=last.sent_ms,
            started_ms=told.started_ms if told is not None else None,
            ended_ms=now_ms if told is None or told.ended_ms is None else told.ended_ms,
            outcome=outcome,
            error=told.error if told is not None else error,
        )
        effect = self._effect
        effect.closed += (self._request_id(step),)
        effect.step_outcome = outcome
        effect.step = self.outline.steps[step.step].name
        effect.context = last.context
        if told is not None:
            effect.took_ms = max(0, now_ms - last.sent_ms)
            if told.started_ms is not None:
                effect.queued_ms = max(0, told.started_ms - last.sent_ms)

    def _free(self, step: StepRecord) -> None:
        """Its node owes nothing any more."""
        self._effect.freed += ((NodeId(step.node_id or ""), self.outline.steps[step.step].action),)

    def _end(self, at: int, outcome: Outcome, error: str | None, *, now_ms: int) -> None:
        self._set_ended(self.steps[at], outcome, error, now_ms=now_ms)
        if outcome is not OK:
            self._skip(self.outline.behind[at], now_ms)
            return
        for next_at in self.outline.behind[at]:
            step = self.steps[next_at]
            if step.state == BLOCKED and self._is_unlocked(next_at):
                self._make_ready(step, now_ms, now_ms)

    def _skip(self, places: Sequence[int], now_ms: int, *, why: str | None = None) -> None:
        """These, and all that wait for them."""
        left = list(places)
        while left:
            step = self.steps[left.pop()]
            if step.is_open:
                step.state, step.due_ms, step.limit_ms, step.ended_ms = SKIPPED, None, None, now_ms
                step.error = why
                self.touched[step.step] = step
                left += self.outline.behind[step.step]

    def _set_ended(self, step: StepRecord, outcome: Outcome, error: str | None, *, now_ms: int) -> None:
        step.state, step.error, step.ended_ms = ENDED, error, now_ms
        step.outcome = _OK if outcome is OK else outcome.value
        step.due_ms = step.limit_ms = None
        self.touched[step.step] = step

    def _reset(self, step: StepRecord) -> None:
        step.state, step.attempt = BLOCKED, 0
        step.outcome = step.error = step.ready_ms = step.due_ms = step.limit_ms = step.ended_ms = step.output = None
        self.touched[step.step] = step

    def _finished(self, now_ms: int) -> Effect:
        """The effect so far, with the task's end if nothing is left."""
        if self.is_open and (self._has_undone(now_ms) if self.outline.undoes else self._has_ended()):
            self.is_open = False
            failed = self.failure()
            self._effect.outcome = OK if failed is None else Outcome(failed.outcome or "")
            if self.outline.undoes and compensation.was_called_off(self.outline, self.steps):
                self._effect.outcome = Outcome.CANCELLED
        return self._effect

    def _has_undone(self, now_ms: int) -> bool:
        """Or had nothing to undo. What can be undone now is begun."""
        while places := compensation.ready(self.outline, self.steps):
            for place in places:
                # Whoever takes over could not tell that it was sent: that is never left out of the store.
                self.steps[place].is_left_out = True
                self._make_ready(self.steps[place], now_ms, now_ms)
        return compensation.has_ended(self.outline, self.steps)

    def _has_ended(self) -> bool:
        # From behind, where most plans end; with `all` it would be the dearest part of a move.
        for step in reversed(self.steps):  # noqa: SIM110
            if step.state in OPEN:
                return False
        return True

    def wanted_for_s(self, step: StepRecord) -> float | None:
        """From its sending on: how long an answer to what is out may count. None: for ever."""
        if step.limit_ms is None:
            return None
        return (step.limit_ms - step.story[-1].sent_ms) / 1000 + self._settings.queue_timeout_s

    def compensation_of(self, at: int) -> StepRecord | None:
        """Its row, for a step that names one."""
        undoes = self.outline.undoes
        return self.steps[self.outline.count + undoes.index(at)] if at in undoes else None

    def failure(self) -> StepRecord | None:
        """The step that failed first, whose outcome is the task's."""
        first: StepRecord | None = None
        for step in self.own:
            if step.state == ENDED and step.outcome != _OK and (first is None or _ended_ms(step) < _ended_ms(first)):
                first = step
        return first

    # --- Small questions ----------------------------------------------------------------------------

    def out_at(self, place: int) -> str | None:
        """The request id of what is out for the step."""
        step = self._at(place)
        return None if step is None or step.state != SENT else self._request_id(step)

    def _at(self, place: int) -> StepRecord | None:
        return self.steps[place] if 0 <= place < len(self.steps) else None

    def _request_id(self, step: StepRecord) -> str:
        return request_id(step.task_id, step.step, step.attempt, step.send)

    def _is_unlocked(self, at: int) -> bool:
        # From behind, where most are that have not ended: of ten side by side, one is looked at instead of five.
        for place in reversed(self.outline.before[at]):  # noqa: SIM110
            if self.steps[place].outcome != _OK:
                return False
        return True


def _ended_ms(step: StepRecord) -> int:
    return step.ended_ms or 0
