"""What a group of moves does to the rows it touches, and what each move answers. Pure: no database, no clock.

An adapter loads the rows of the tasks that `needs_of` names, under a lock, and a `RoutedLedger` over them takes the
moves in order. Then it says which inputs and outputs the messages need that it owes: the adapter loads those and lets
it `build`, until nothing is wanted any more, and writes what stands in the attributes. What happens to a step is
decided in `execution/steps.py`; what messages look like, in `routed_messages.py`.
"""

from __future__ import annotations

import random as chance
from typing import TYPE_CHECKING, assert_never

import msgspec

from canoa.broker.port import Message
from canoa.errors import InputMissing, PayloadTooLarge
from canoa.execution.outcome import Outcome
from canoa.execution.step_moves import CancelTask, Rerun, StepDue, StepEnd, StepLost, Verdict
from canoa.execution.step_records import BLOCKED, SENT, Outline, StepRecord
from canoa.execution.step_rules import Effect
from canoa.execution.steps import Course
from canoa.store import routed_messages
from canoa.store.ledger import OPEN, TaskRecord, accepted_record, close, reopen, with_names
from canoa.store.packing import pack, plain, unpack_message
from canoa.store.port import State
from canoa.store.routed_duties import Answer, Attempt, Ending, Reply, moved, wanted_for
from canoa.store.routed_port import Begin, Moved, Owed, Paid
from canoa.wire.routed import reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from canoa.broker.port import Publication
    from canoa.execution.step_moves import Route
    from canoa.execution.step_settings import StepSettings
    from canoa.store.outlines import Outlines
    from canoa.store.routed_duties import Duty, Wanted
    from canoa.store.routed_port import Move


_PAID = Moved(verdict=Verdict.TAKEN)
_NO_REQUEST = Message(body=b"{}")


def needs_of(moves: Iterable[Move]) -> dict[str, None]:
    """The tasks whose rows must be at hand, in the order of the moves."""
    return {_task_id(move): None for move in moves if not isinstance(move, Paid)}


def rounds(moves: Sequence[Move]) -> Iterator[Sequence[Move]]:
    """To be taken and written one after the other: a `Rerun` needs the end before it as it was written."""
    start = 0
    for at, move in enumerate(moves):
        if isinstance(move, Rerun) and at > start:
            yield moves[start:at]
            start = at
    yield moves[start:]


def _task_id(move: Begin | StepEnd | StepLost | StepDue | CancelTask | Rerun) -> str:
    return plain(move.task.id if isinstance(move, Begin) else move.task_id)


class RoutedLedger:
    """Takes moves one after the other. What must be written afterwards is in the attributes."""

    def __init__(
        self,
        tasks: Iterable[TaskRecord],
        steps: Mapping[str, tuple[Outline, Sequence[StepRecord]]],
        outlines: Outlines,
        *,
        route: Route,
        settings: StepSettings,
        random: Callable[[], float] = chance.random,
    ) -> None:
        self._tasks = {task.id: task for task in tasks}
        self._outlines = outlines
        self._route = route
        self._settings = settings
        self._random = random
        self._courses = {task_id: self._course(self._tasks[task_id], *of_task) for task_id, of_task in steps.items()}
        self._duties: list[Duty] = []
        self._answers: list[Answer | None] = []  # None: of `Paid`
        self._messages: dict[str, Message] = {}
        self._changed: dict[str, TaskRecord] = {}
        self._with_result: set[str] = set()
        self._new_outputs: set[tuple[str, int]] = set()
        self.new_tasks: dict[str, TaskRecord] = {}  # to insert, with all their steps
        self.plans: dict[str, tuple[Outline, int]] = {}  # used by new tasks, and when
        self.owed: list[tuple[str, int, bytes]] = []  # key, when it was made, publication
        self.paid: dict[str, None] = {}  # to delete from what is owed, before that is written
        self._unsent: set[str] = set()  # request ids, also of what these moves send

    # --- To write -----------------------------------------------------------------------------------

    def updated_tasks(self, *, with_result: bool) -> list[TaskRecord]:
        return [task for key, task in self._changed.items() if (key in self._with_result) is with_result]

    @property
    def new_steps(self) -> list[StepRecord]:
        return [step for task_id in self.new_tasks for step in self._courses[task_id].steps]

    def updated_steps(self, *, with_output: bool) -> list[StepRecord]:
        return [
            step
            for task_id, course in self._courses.items()
            if task_id not in self.new_tasks
            for step in course.touched.values()
            if ((task_id, step.step) in self._new_outputs) is with_output
        ]

    # --- Moves --------------------------------------------------------------------------------------

    def overdue(self, moves: Sequence[Move]) -> list[str]:
        """Request ids that these moves may end for want of an answer: to be looked up among what is owed."""
        due = [move for move in moves if isinstance(move, StepDue)]
        courses = [(move, self._courses.get(plain(move.task_id))) for move in due]
        found = [
            key for move, course in courses if course is not None and (key := course.out_at(move.step)) is not None
        ]
        paid = {plain(move.key) for move in moves if isinstance(move, Paid)} if found else frozenset()
        return [key for key in found if key not in paid]

    def give_unsent(self, keys: Iterable[str]) -> None:
        """Those of them that are owed still: nobody could answer what the broker never got."""
        self._unsent.update(keys)

    def take(self, moves: Sequence[Move]) -> None:
        for move in moves:
            if isinstance(move, Paid):  # the most frequent one, and the least
                self.paid[plain(move.key)] = None
                self._answers.append(None)
            else:
                self._answers.append(self._take(move))

    def answers(self) -> list[Moved]:
        """One for each move, once everything is built."""
        return [_PAID if answer is None else moved(answer) for answer in self._answers]

    def _take(self, move: Begin | StepEnd | StepLost | StepDue | CancelTask | Rerun) -> Answer:
        match move:
            case Begin():
                return self._begin(move)
            case StepEnd() | StepLost() | StepDue():
                return self._move_step(move)
            case CancelTask():
                return self._cancel(move)
            case Rerun():
                return self._rerun(move)
            case _:
                assert_never(move)

    def _begin(self, move: Begin) -> Answer:
        known = self._tasks.get(plain(move.task.id))
        if known is not None:
            return self._begin_again(move, known)
        outline = self._outlines.of(move.plan)
        task = accepted_record(move.task)
        task.plan = outline.id
        self._tasks[task.id] = self.new_tasks[task.id] = task
        self._messages[task.id] = move.task.message
        self.plans[outline.id] = outline, move.now_ms
        steps = [StepRecord(task.id, at, BLOCKED) for at in range(len(outline.before))]
        course = self._courses[task.id] = self._course(task, outline, steps)
        return self._did(task, course.begin(move.now_ms, not_before_ms=move.task.due_ms), move.now_ms)

    def _begin_again(self, move: Begin, known: TaskRecord) -> Answer:
        """The newcomer hears as well: of the end when it comes, or at once."""
        answer = Answer(move.now_ms, Effect(verdict=Verdict.DOUBLE))
        queues = (move.task.reply_to or "").split()
        if self._is_open(known):
            heard = with_names(known.reply_to, move.task.reply_to)
            if heard != known.reply_to:
                known.reply_to = heard
                self._change(known)
        else:
            self._duties += [Reply(known, answer, plain(queue)) for queue in queues]
        return answer

    def _move_step(self, move: StepEnd | StepLost | StepDue) -> Answer:
        task, course = self._find(move.task_id)
        if task is None or course is None:
            return Answer(move.now_ms, Effect(verdict=Verdict.UNKNOWN))
        if isinstance(move, StepEnd):
            return self._end_step(move, task, course)
        if isinstance(move, StepLost):
            effect = course.lose(move)
        else:
            effect = course.due(move, is_unsent=course.out_at(move.step) in self._unsent)
        return self._did(task, effect, move.now_ms)

    def _end_step(self, move: StepEnd, task: TaskRecord, course: Course) -> Answer:
        effect = course.end(_bounded(move))
        if effect.verdict is Verdict.TAKEN and move.outcome is Outcome.OK:
            self._new_outputs.add((task.id, move.step))
            self._run_on(task)
        return self._did(task, effect, move.now_ms, told=move)

    def _cancel(self, move: CancelTask) -> Answer:
        task, course = self._find(move.task_id)
        if task is None or course is None:
            return Answer(move.now_ms, Effect(verdict=Verdict.UNKNOWN))
        return self._did(task, course.cancel(move.now_ms), move.now_ms)

    def _rerun(self, move: Rerun) -> Answer:
        task, course = self._find(move.task_id)
        if task is None or course is None:
            return Answer(move.now_ms, Effect(verdict=Verdict.UNKNOWN))
        if not task.has_message:  # its input was forgotten
            return Answer(move.now_ms, Effect(verdict=Verdict.LATE))
        effect = course.rerun(move.now_ms)
        if effect.verdict is Verdict.TAKEN:
            reopen(task, run=task.run + 1)
            self._change(task, with_result=True)
        return self._did(task, effect, move.now_ms)

    # --- Messages -----------------------------------------------------------------------------------

    def wanted(self) -> Wanted:
        """What is missing for what `build` would build now."""
        return wanted_for(self._duties, self._messages)

    def give(
        self,
        *,
        messages: Mapping[str, bytes | None],
        results: Mapping[str, bytes | None],
        outputs: Mapping[tuple[str, int], bytes | None],
    ) -> None:
        """What was wanted. None: it is not there any more."""
        for task_id, blob in messages.items():
            self._messages[task_id] = unpack_message(blob) if blob is not None else _NO_REQUEST
        for task_id, blob in results.items():
            self._tasks[task_id].result = blob
        for (task_id, step), output in outputs.items():
            self._courses[task_id].steps[step].output = output

    def build(self) -> bool:
        """The messages for what has happened. True: that made more to build, such as the end of a step whose input
        cannot be put together."""
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
        message = self._messages[duty.task.id]
        try:
            key, publication = routed_messages.attempt(duty.task, message, duty.course, step, now_ms=duty.answer.now_ms)
        except (InputMissing, PayloadTooLarge) as exc:
            self._refuse(duty, Outcome.REFUSED, str(exc))
        except routed_messages.DeadlinePassed as exc:
            self._refuse(duty, Outcome.EXPIRED, str(exc))
        else:
            self._owe(duty.answer, key, publication)

    def _refuse(self, duty: Attempt, outcome: Outcome, error: str) -> None:
        now_ms = duty.answer.now_ms
        effect = duty.course.refuse(duty.step, duty.send, outcome=outcome, error=error, now_ms=now_ms)
        if effect is not None:
            duty.answer.effect.outcome = effect.outcome
            duty.answer.effect.due_ms += effect.due_ms
            self._follow(duty.task, duty.course, effect, duty.answer, told=None)

    def _build_end(self, duty: Ending) -> None:
        task, answer = duty.task, duty.answer
        end, published = routed_messages.end(task, duty.course, duty.outcome, told=duty.told, ended_ms=answer.now_ms)
        close(task, end)
        self._change(task, with_result=True)
        answer.effect.outcome = end.outcome
        for queue in task.reply_to.split():
            self._owe(answer, _reply_key(task, queue), reply(end.result, queue))
        for number, publication in enumerate(published):
            self._owe(answer, f"{task.id}.{task.run}.final.{number}", publication)

    def _build_reply(self, duty: Reply) -> None:
        if duty.task.result is not None:
            told = reply(unpack_message(duty.task.result), duty.queue)
            self._owe(duty.answer, _reply_key(duty.task, duty.queue), told)

    def _owe(self, answer: Answer, key: str, publication: Publication) -> None:
        answer.owed.append(Owed(key=key, publication=publication))
        self.owed.append((key, answer.now_ms, pack(publication)))

    # --- Bookkeeping --------------------------------------------------------------------------------

    def _course(self, task: TaskRecord, outline: Outline, steps: Sequence[StepRecord]) -> Course:
        return Course(
            outline,
            steps,
            is_open=task.standing in OPEN,
            route=self._route,
            settings=self._settings,
            random=self._random,
        )

    def _is_open(self, task: TaskRecord) -> bool:
        """Also while its end is yet to be built."""
        course = self._courses.get(task.id)
        return task.standing in OPEN if course is None else course.is_open

    def _find(self, task_id: str) -> tuple[TaskRecord | None, Course | None]:
        return self._tasks.get(plain(task_id)), self._courses.get(plain(task_id))

    def _did(self, task: TaskRecord, effect: Effect, now_ms: int, *, told: StepEnd | None = None) -> Answer:
        answer = Answer(now_ms, effect, task=task)
        self._follow(task, self._courses[task.id], effect, answer, told=told)
        return answer

    def _follow(
        self, task: TaskRecord, course: Course, effect: Effect, answer: Answer, *, told: StepEnd | None
    ) -> None:
        for key in effect.closed:
            self.paid[key] = None
        for at in effect.sends:
            self._duties.append(Attempt(task, course, answer, at, course.steps[at].send))
            self._unsent.add(course.out_at(at) or "")
        if effect.outcome is not None:
            self._duties.append(Ending(task, course, answer, effect.outcome, told))

    def _run_on(self, task: TaskRecord) -> None:
        if task.standing == State.WAITING.value:
            task.standing = State.RUNNING.value
            self._change(task)

    def _change(self, task: TaskRecord, *, with_result: bool = False) -> None:
        if task.id in self.new_tasks:
            return  # it is inserted with all it has
        self._changed[task.id] = task
        if with_result:
            self._with_result.add(task.id)


def _reply_key(task: TaskRecord, queue: str) -> str:
    return f"{task.id}.{task.run}.reply.{queue}"


def _bounded(move: StepEnd) -> StepEnd:
    """With an error that a row can keep, its type first."""
    if move.error is None:
        return move
    error = f"{move.error_type}: {move.error}" if move.error_type else move.error
    return msgspec.structs.replace(move, error=plain(error[: routed_messages.MAX_ERROR_CHARS]))
