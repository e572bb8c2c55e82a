"""Builds the messages that a group of moves owes, once everything is at hand that they are made of.

What they look like is in `routed_messages.py`, what is still to be built in `routed_duties.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from canoa.broker.port import Message
from canoa.errors import InputMissing, PayloadTooLarge
from canoa.execution.outcome import Outcome
from canoa.execution.step_records import SENT
from canoa.store import routed_messages
from canoa.store.ledger import close
from canoa.store.packing import unpack_message
from canoa.store.routed_duties import Attempt, Ending, Reply, wanted_for
from canoa.store.routed_port import Owed
from canoa.wire.routed import reply

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canoa.broker.port import Publication
    from canoa.execution.step_moves import StepEnd
    from canoa.execution.step_rules import Effect
    from canoa.execution.steps import Course
    from canoa.store.ledger import TaskRecord
    from canoa.store.routed_duties import Answer, Duty, Wanted
    from canoa.store.routed_memory import RoutedTask

NO_REQUEST: Final = Message(body=b"{}")
_OK: Final = Outcome.OK.value


class Messages:
    """Of one group."""

    def __init__(self) -> None:
        self.is_ahead = False  # attempts leave before the group is on disk
        self._duties: list[Duty] = []
        self.owed: list[Owed] = []
        self.latest_ms = 0  # when the last of them was owed
        self.closed: list[str] = []  # keys of attempts that are out no more
        self.ended: list[TaskRecord] = []  # tasks whose end was built, and is in their records

    # --- To build -----------------------------------------------------------------------------------

    def follow(
        self, known: RoutedTask, course: Course, effect: Effect, answer: Answer, *, told: StepEnd | None
    ) -> None:
        """What has happened is to be told."""
        self.closed += effect.closed
        if effect.closed and effect.step_outcome != _OK:
            known.count_failures()
        for at in effect.sends:
            self._duties.append(Attempt(known, course, answer, at, course.steps[at].send))
        if effect.outcome is not None:
            self._duties.append(Ending(known, course, answer, effect.outcome, told))

    def reply(self, ended: TaskRecord, answer: Answer, queues: Iterable[str]) -> None:
        self._duties += [Reply(ended, answer, queue) for queue in queues]

    def has_attempt(self, course: Course, step: int) -> bool:
        return any(isinstance(duty, Attempt) and (duty.course, duty.step) == (course, step) for duty in self._duties)

    def wanted(self) -> Wanted:
        """What is missing for what `build` would build now."""
        return wanted_for(self._duties)

    # --- Building -----------------------------------------------------------------------------------

    def build(self) -> bool:
        """True: that made more to build, such as the end of a step whose input cannot be put together."""
        duties, self._duties = self._duties, []
        for duty in duties:
            match duty:
                case Attempt():
                    self._build_attempt(duty)
                case Ending():
                    self._build_end(duty)
                case Reply():
                    self._build_reply(duty)
                case _:
                    assert_never(duty)
        return bool(self._duties)

    def _build_attempt(self, duty: Attempt) -> None:
        step = duty.course.steps[duty.step]
        if step.state != SENT or step.send != duty.send:
            return  # cancelled by a later move of the same group
        request = duty.known.request or NO_REQUEST
        try:
            key, publication = routed_messages.attempt(duty.course, step, request, now_ms=duty.answer.now_ms)
        except (InputMissing, PayloadTooLarge) as exc:
            self._refuse(duty, Outcome.REFUSED, str(exc))
        except routed_messages.DeadlinePassed as exc:
            self._refuse(duty, Outcome.EXPIRED, str(exc))
        else:
            self._owe(duty.answer, key, publication, is_ahead=self.is_ahead)

    def _refuse(self, duty: Attempt, outcome: Outcome, error: str) -> None:
        now_ms = duty.answer.now_ms
        effect = duty.course.refuse(duty.step, duty.send, outcome=outcome, error=error, now_ms=now_ms)
        if effect is not None:
            duty.answer.effect.outcome = effect.outcome
            duty.answer.effect.due_ms += effect.due_ms
            duty.answer.effect.freed += effect.freed
            self.follow(duty.known, duty.course, effect, duty.answer, told=None)

    def _build_end(self, duty: Ending) -> None:
        task, answer = duty.known.task, duty.answer
        end, published = routed_messages.end(task, duty.course, duty.outcome, told=duty.told, ended_ms=answer.now_ms)
        close(task, end)
        self.ended.append(task)
        answer.effect.outcome = end.outcome
        queues = task.reply_to.split()
        for queue in queues:
            self._owe(answer, _reply_key(task, queue), reply(end.result, queue))
        self._owe(answer, f"{task.id}.{task.run}.final.0", published, can_wait=bool(queues))

    def _build_reply(self, duty: Reply) -> None:
        if duty.task.result is not None:
            told = reply(unpack_message(duty.task.result), duty.queue)
            self._owe(duty.answer, _reply_key(duty.task, duty.queue), told)

    def _owe(
        self, answer: Answer, key: str, publication: Publication, *, is_ahead: bool = False, can_wait: bool = False
    ) -> None:
        owed = Owed(key=key, publication=publication, can_wait=can_wait)
        (answer.sent if is_ahead else answer.owed).append(owed)
        self.owed.append(owed)
        if answer.now_ms > self.latest_ms:
            self.latest_ms = answer.now_ms


def _reply_key(task: TaskRecord, queue: str) -> str:
    return f"{task.id}.{task.run}.reply.{queue}"
