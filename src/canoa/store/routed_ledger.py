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
from canoa.execution.step_records import BLOCKED, SENT, Outline, StepRecord
from canoa.execution.steps import Course, Effect
from canoa.store import routed_messages
from canoa.store.ledger import OPEN, TaskRecord, accepted_record, close, reopen, with_names
from canoa.store.packing import pack, plain, unpack_message
from canoa.store.port import State
from canoa.store.routed_port import (
    Begin,
    CancelTask,
    Moved,
    Owed,
    Paid,
    Rerun,
    StepDue,
    StepEnd,
    StepLost,
    Verdict,
)
from canoa.vocabulary import ActionName
from canoa.wire.routed import reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from canoa.broker.port import Publication
    from canoa.execution.step_settings import StepSettings
    from canoa.store.outlines import Outlines
    from canoa.store.routed_port import Move, Route


_PAID = Moved(verdict=Verdict.TAKEN)
_NO_REQUEST = Message(body=b"{}")


class Wanted(msgspec.Struct):
    """What must be known before messages can be built, besides the rows: blobs of tasks, outputs of steps."""

    messages: dict[str, None] = {}  # by task; sets that keep the order
    results: dict[str, None] = {}
    outputs: dict[tuple[str, int], None] = {}

    def __bool__(self) -> bool:
        return bool(self.messages or self.results or self.outputs)


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


class _Answer(msgspec.Struct):
    """What will be a `Moved`."""

    now_ms: int
    effect: Effect
    owed: list[Owed] = []
    task: TaskRecord | None = None


class _Work(msgspec.Struct):
    """A message that is still to be built: an attempt (`step` and `send`), an end, or an answer for a late caller."""

    task: TaskRecord
    course: Course | None
    answer: _Answer
    kind: str  # "attempt", "end" or "reply"
    step: int = 0
    send: int = 0
    told: StepEnd | None = None  # what ended the task, if a node did
    queue: str = ""


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
        self._work: list[_Work] = []
        self._answers: list[_Answer | None] = []  # None: of `Paid`
        self._messages: dict[str, Message] = {}
        self._changed: dict[str, TaskRecord] = {}
        self._with_result: set[str] = set()
        self._new_outputs: set[tuple[str, int]] = set()
        self.new_tasks: dict[str, TaskRecord] = {}  # to insert, with all their steps
        self.plans: dict[str, tuple[Outline, int]] = {}  # used by new tasks, and when
        self.owed: list[tuple[str, int, bytes]] = []  # key, when it was made, publication
        self.paid: dict[str, None] = {}  # to delete from what is owed, before that is written

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

    def take(self, moves: Sequence[Move]) -> None:
        for move in moves:
            if isinstance(move, Paid):  # the most frequent one, and the least
                self.paid[plain(move.key)] = None
                self._answers.append(None)
            else:
                self._answers.append(self._take(move))

    def answers(self) -> list[Moved]:
        """One for each move, once everything is built."""
        return [_PAID if answer is None else _moved(answer) for answer in self._answers]

    def _take(self, move: Begin | StepEnd | StepLost | StepDue | CancelTask | Rerun) -> _Answer:
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

    def _begin(self, move: Begin) -> _Answer:
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

    def _begin_again(self, move: Begin, known: TaskRecord) -> _Answer:
        """The newcomer hears as well: of the end when it comes, or at once."""
        answer = _Answer(move.now_ms, Effect(verdict=Verdict.DOUBLE))
        queues = (move.task.reply_to or "").split()
        if known.standing in OPEN:
            heard = with_names(known.reply_to, move.task.reply_to)
            if heard != known.reply_to:
                known.reply_to = heard
                self._change(known)
        else:
            self._work += [_Work(known, None, answer, "reply", queue=plain(queue)) for queue in queues]
        return answer

    def _move_step(self, move: StepEnd | StepLost | StepDue) -> _Answer:
        task, course = self._find(move.task_id)
        if task is None or course is None:
            return _Answer(move.now_ms, Effect(verdict=Verdict.UNKNOWN))
        if isinstance(move, StepEnd):
            return self._end_step(move, task, course)
        effect = course.lose(move) if isinstance(move, StepLost) else course.due(move)
        return self._did(task, effect, move.now_ms)

    def _end_step(self, move: StepEnd, task: TaskRecord, course: Course) -> _Answer:
        effect = course.end(_bounded(move))
        if effect.verdict is Verdict.TAKEN and move.outcome is Outcome.OK:
            self._new_outputs.add((task.id, move.step))
            self._run_on(task)
        return self._did(task, effect, move.now_ms, told=move)

    def _cancel(self, move: CancelTask) -> _Answer:
        task, course = self._find(move.task_id)
        if task is None or course is None:
            return _Answer(move.now_ms, Effect(verdict=Verdict.UNKNOWN))
        return self._did(task, course.cancel(move.now_ms), move.now_ms)

    def _rerun(self, move: Rerun) -> _Answer:
        task, course = self._find(move.task_id)
        if task is None or course is None:
            return _Answer(move.now_ms, Effect(verdict=Verdict.UNKNOWN))
        if not task.has_message:  # its input was forgotten
            return _Answer(move.now_ms, Effect(verdict=Verdict.LATE))
        effect = course.rerun(move.now_ms)
        if effect.verdict is Verdict.TAKEN:
            reopen(task, run=task.run + 1)
            self._change(task, with_result=True)
        return self._did(task, effect, move.now_ms)

    # --- Messages -----------------------------------------------------------------------------------

    def wanted(self) -> Wanted:
        """What is missing for what `build` would build now."""
        wanted = Wanted()
        for work in self._work:
            if work.kind == "reply":
                if work.task.result is None:
                    wanted.results[work.task.id] = None
                continue
            if work.kind == "attempt" and work.task.id not in self._messages:
                wanted.messages[work.task.id] = None
            for step in self._needed(work):
                if step.output is None:
                    wanted.outputs[step.task_id, step.step] = None
        return wanted

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
        work, self._work = self._work, []
        for each in work:
            self._build(each)
        return bool(self._work)

    def _build(self, work: _Work) -> None:
        match work.kind:
            case "attempt":
                self._build_attempt(work)
            case "end":
                self._build_end(work)
            case _:
                if work.task.result is not None:
                    key = f"{work.task.id}.{work.task.run}.reply.{work.queue}"
                    self._owe(work, key, reply(unpack_message(work.task.result), work.queue))

    def _build_attempt(self, work: _Work) -> None:
        course = work.course
        assert course is not None
        step, now_ms = course.steps[work.step], work.answer.now_ms
        if step.state != SENT or step.send != work.send:
            return  # cancelled by a later move of the same group
        message = self._messages[work.task.id]
        try:
            key, publication = routed_messages.attempt(work.task, message, course, step, now_ms=now_ms)
        except (InputMissing, PayloadTooLarge) as exc:
            self._refuse(work, Outcome.REFUSED, str(exc))
        except routed_messages.DeadlinePassed as exc:
            self._refuse(work, Outcome.EXPIRED, str(exc))
        else:
            self._owe(work, key, publication)

    def _refuse(self, work: _Work, outcome: Outcome, error: str) -> None:
        assert work.course is not None
        now_ms = work.answer.now_ms
        effect = work.course.refuse(work.step, work.send, outcome=outcome, error=error, now_ms=now_ms)
        if effect is None:
            return
        into = work.answer.effect
        into.outcome = effect.outcome
        into.due_ms += effect.due_ms
        self._follow(work.task, work.course, effect, work.answer, told=None)

    def _build_end(self, work: _Work) -> None:
        assert work.course is not None
        task = work.task
        outcome = work.answer.effect.outcome
        assert outcome is not None
        end, published = routed_messages.end(task, work.course, outcome, told=work.told, ended_ms=work.answer.now_ms)
        close(task, end)
        self._change(task, with_result=True)
        work.answer.effect.outcome = end.outcome
        for queue in task.reply_to.split():
            self._owe(work, f"{task.id}.{task.run}.reply.{queue}", reply(end.result, queue))
        for number, publication in enumerate(published):
            self._owe(work, f"{task.id}.{task.run}.final.{number}", publication)

    def _needed(self, work: _Work) -> list[StepRecord]:
        """Steps whose outputs the message is made of."""
        course = work.course
        assert course is not None
        if work.kind == "attempt":
            return [course.steps[at] for at in course.outline.before[work.step]]
        return [step for step in course.steps if step.is_ok]

    def _owe(self, work: _Work, key: str, publication: Publication) -> None:
        work.answer.owed.append(Owed(key=key, publication=publication))
        self.owed.append((key, work.answer.now_ms, pack(publication)))

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

    def _find(self, task_id: str) -> tuple[TaskRecord | None, Course | None]:
        return self._tasks.get(plain(task_id)), self._courses.get(plain(task_id))

    def _did(self, task: TaskRecord, effect: Effect, now_ms: int, *, told: StepEnd | None = None) -> _Answer:
        answer = _Answer(now_ms, effect, task=task)
        self._follow(task, self._courses[task.id], effect, answer, told=told)
        return answer

    def _follow(
        self, task: TaskRecord, course: Course, effect: Effect, answer: _Answer, *, told: StepEnd | None
    ) -> None:
        for key in effect.closed:
            self.paid[key] = None
        for at in effect.sends:
            self._work.append(_Work(task, course, answer, "attempt", at, course.steps[at].send))
        if effect.outcome is not None:
            self._work.append(_Work(task, course, answer, "end", told=told))

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


def _bounded(move: StepEnd) -> StepEnd:
    """With an error that a row can keep, its type first."""
    if move.error is None:
        return move
    error = f"{move.error_type}: {move.error}" if move.error_type else move.error
    return msgspec.structs.replace(move, error=plain(error[: routed_messages.MAX_ERROR_CHARS]))


def _moved(answer: _Answer) -> Moved:
    effect = answer.effect
    return Moved(
        verdict=effect.verdict,
        owed=tuple(answer.owed),
        task_action=None if answer.task is None else ActionName(answer.task.action),
        node_id=effect.node_id,
        action=effect.action,
        step=effect.step,
        queued_ms=effect.queued_ms,
        outcome=effect.outcome,
        step_outcome=effect.step_outcome,
        due_ms=tuple(effect.due_ms),
        cancel=tuple(effect.cancel),
    )
