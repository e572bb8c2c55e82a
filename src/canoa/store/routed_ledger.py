"""What a group of moves does to the rows it touches, and what each move answers. No database, no clock.

An adapter brings the tasks that `needs_of` names, read under a lock or remembered, and a `RoutedLedger` over them takes
the moves in order. Then it says which inputs and outputs the messages need that it owes: the adapter loads those and
lets it `build`, until nothing is wanted any more, and writes what stands in the attributes. Once that is committed,
`settle` notes it. What happens to a step is decided in `execution/steps.py`; messages are built by
`routed_building.py`.
"""

from __future__ import annotations

import random as chance
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from canoa.execution.outcome import OK
from canoa.execution.step_moves import TAKEN, CancelTask, Rerun, StepDue, StepEnd, StepLost, Verdict
from canoa.execution.step_records import BLOCKED, SENT, StepRecord
from canoa.execution.step_rules import Effect
from canoa.execution.steps import Course
from canoa.store.ledger import OPEN, TaskRecord, accepted_record, reopen, with_names
from canoa.store.packing import plain, unpack_message
from canoa.store.port import State
from canoa.store.routed_building import NO_REQUEST, Messages
from canoa.store.routed_duties import Answer, moved
from canoa.store.routed_memory import RoutedTask
from canoa.store.routed_messages import MAX_ERROR_CHARS
from canoa.store.routed_port import HOLD_OWED_MS, Begin, Moved
from canoa.store.routed_unwritten import Send, send_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    from canoa.execution.step_moves import Route
    from canoa.execution.step_records import Outline
    from canoa.execution.step_settings import StepSettings
    from canoa.store.routed_debts import Bill
    from canoa.store.routed_duties import Wanted
    from canoa.store.routed_notes import Notes
    from canoa.store.routed_port import Move


_WAITING = State.WAITING.value
_RUNNING = State.RUNNING.value

DUE_LATER_MS: Final = 5_000
"""A step whose time comes sooner is written at once: whoever looks for it must find it. Longer than what is left out
stays so (twice `sqlite_ahead.LASTING_S`)."""


def needs_of(moves: Iterable[Move]) -> dict[str, bool]:
    """The tasks whose rows must be at hand, in the order of the moves, and whether the first of those begins it."""
    needs: dict[str, bool] = {}
    for move in moves:
        if isinstance(move, Begin):
            needs.setdefault(plain(move.task.id), True)
        else:
            needs.setdefault(plain(move.task_id), False)
    return needs


def rounds(moves: Sequence[Move]) -> Iterator[Sequence[Move]]:
    """To be taken and written one after the other: a `Rerun` needs the end before it as it was written."""
    start = 0
    for at, move in enumerate(moves):
        if isinstance(move, Rerun) and at > start:
            yield moves[start:at]
            start = at
    yield moves[start:]


class RoutedLedger:
    """Takes moves one after the other. What must be written afterwards is in the attributes."""

    def __init__(
        self,
        tasks: Mapping[str, RoutedTask],
        notes: Notes,
        *,
        route: Route,
        settings: StepSettings,
        random: Callable[[], float] = chance.random,
    ) -> None:
        self._tasks = dict(tasks)
        self._notes = notes
        self._route = route
        self._settings = settings
        self._random = random
        self._courses: dict[str, Course] = {}  # of the tasks that were moved
        self._messages = Messages()
        self._answers: list[Answer] = []
        self._changed: dict[str, TaskRecord] = {}
        self._with_result: set[str] = set()
        self._unsent: frozenset[str] = frozenset()
        self._is_ahead: bool | None = None  # all it sends leaves at once, so what can wait is not written
        self._begun: dict[str, TaskRecord] = {}  # tasks that run since just now
        self._plans: dict[str, tuple[Outline, int]] = {}  # used by new tasks, and when
        self.new_tasks: dict[str, TaskRecord] = {}  # to insert
        self.new_steps: list[StepRecord] = []
        self.ended_steps: list[StepRecord] = []  # to update, with their outputs
        self.updated_steps: list[StepRecord] = []
        self.plans: list[tuple[Outline, int]] = []
        self.bills: list[Bill] = []  # of messages, to insert
        self.spent: list[int] = []  # bills to delete
        self.left_out: list[Send] = []  # not to write, but to know
        self.left_running: list[str] = []

    # --- To write -----------------------------------------------------------------------------------

    def updated_tasks(self, *, with_result: bool) -> list[TaskRecord]:
        if not self._changed:
            return []
        return [task for key, task in self._changed.items() if (key in self._with_result) is with_result]

    def kept_tasks(self) -> list[tuple[str, int]]:
        """Whose rows have nothing new, but whose steps have; with their versions."""
        return [
            (task_id, self.version(task_id))
            for task_id, course in self._courses.items()
            if course.touched and task_id not in self._changed and task_id not in self.new_tasks
        ]

    @property
    def is_all_written(self) -> bool:
        """Something is written about each of the tasks: so whoever writes it finds out whether it was as we knew."""
        return not self.untouched()

    def untouched(self) -> list[RoutedTask]:
        """The tasks that are as they were given: no move has changed anything about them."""
        moved = {task_id for task_id, course in self._courses.items() if course.touched}
        written = self._changed.keys() | self.new_tasks.keys() | moved
        return [known for task_id, known in self._tasks.items() if task_id not in written]

    @property
    def has_only_new(self) -> bool:
        """It knows of no task that was there before."""
        return len(self.new_tasks) == len(self._tasks)

    @property
    def has_ended_all(self) -> bool:
        """Nothing more will happen to any of the tasks."""
        return all(known.task.standing not in OPEN for known in self._tasks.values())

    def version(self, task_id: str) -> int:
        return self._tasks[task_id].version

    def close(self, paid: Container[str] = ()) -> None:
        """After the last message was built: say what is to be written. `paid`: keys of what need not be owed, since
        the broker has it."""
        notes = self._notes
        closed = {*self._messages.closed}
        owed = [each for each in self._messages.owed if each.key not in closed and each.key not in paid]
        self.bills = notes.debts.new_bills(owed, until_ms=self._messages.latest_ms + HOLD_OWED_MS)
        self.spent = notes.debts.spent()
        self.plans = notes.outlines.to_write(self._plans.values())
        self._close_begun()
        for course in self._courses.values():
            for step in course.touched.values():
                if self._is_ahead and self._can_wait(step):
                    step.is_left_out = True
                    self.left_out.append(send_of(step))
                elif not step.is_stored:
                    step.is_stored = True
                    self.new_steps.append(step)
                elif step.is_ok:  # nothing happens to it before another run: its output is new
                    self.ended_steps.append(step)
                else:
                    self.updated_steps.append(step)

    def _close_begun(self) -> None:
        begun = {key: task for key, task in self._begun.items() if key not in self._changed}
        if self._is_ahead:
            self.left_running = [*begun]
        else:
            self._changed |= begun

    def _can_wait(self, step: StepRecord) -> bool:
        """It was sent for the first time, and that is all."""
        is_first = step.state == SENT and step.send == 1 and not step.is_stored
        if not is_first or step.is_left_out:  # or else something has happened since
            return False
        return (step.due_ms or 0) >= self._messages.latest_ms + DUE_LATER_MS

    def settle(self, version: int = 0, *, now_s: float = 0.0) -> None:
        """All of it is committed. `version`: of the rows that were written. `now_s`: where some were left out."""
        notes = self._notes
        notes.unwritten.wrote(
            (*self.new_steps, *self.ended_steps, *self.updated_steps), (*self.new_tasks, *self._changed)
        )
        notes.unwritten.add(self.left_out, self.left_running, now_s)
        notes.outlines.written(self.plans)
        notes.debts.wrote(self.bills, deleted=self.spent)
        notes.debts.pay(self._messages.closed)
        if version:  # not every database counts them
            for task_id in (*self.new_tasks, *self._changed, *(task_id for task_id, _ in self.kept_tasks())):
                self._tasks[task_id].version = version
        notes.memory.take(self._tasks)
        notes.memory.keep(self._left_open())

    def _left_open(self) -> Iterator[RoutedTask]:
        for known in self._tasks.values():
            if known.outline is not None and known.task.standing in OPEN:
                known.task.message = None  # its request is at hand
                yield known

    # --- Moves --------------------------------------------------------------------------------------

    def known(self, task_id: str) -> RoutedTask | None:
        return self._tasks.get(task_id)

    def send_ahead(self, is_ahead: bool) -> None:
        """Whether the attempts that it builds from now on leave at once."""
        self._messages.is_ahead = is_ahead
        self._is_ahead = is_ahead and self._is_ahead is not False

    def know(self, tasks: Mapping[str, RoutedTask]) -> None:
        """For the moves that come next."""
        self._tasks.update(tasks)

    def asks_for_unsent(self, moves: Sequence[Move]) -> bool:
        """Whether these moves may end an attempt for want of an answer that others may have yet to send."""
        due = [(move, self._course(plain(move.task_id))) for move in moves if isinstance(move, StepDue)]
        out = [course.out_at(move.step) for move, course in due if course is not None]
        return any(key is not None and not self._notes.debts.owes(key) for key in out)

    def give_unsent(self, keys: Iterable[str]) -> None:
        """What others owe still: nobody could answer what the broker never got."""
        self._unsent = frozenset(keys)

    def take(self, moves: Sequence[Move]) -> None:
        self._answers += map(self._take, moves)

    def answers(self, since: int = 0) -> list[Moved]:
        """One for each move, once everything is built; but for the first ones."""
        return [*map(moved, self._answers[since:])]

    def _take(self, move: Move) -> Answer:
        match move:
            case StepEnd():  # first, since most are
                return self._end_step(move)
            case Begin():
                return self._begin(move)
            case StepLost() | StepDue():
                return self._move_step(move)
            case CancelTask():
                return self._cancel(move)
            case Rerun():
                return self._rerun(move)
            case _:
                assert_never(move)

    def _begin(self, move: Begin) -> Answer:
        task_id = plain(move.task.id)
        known = self._tasks.get(task_id)
        if known is not None:
            return self._begin_again(move, known.task)
        outline = self._notes.outlines.of(move.plan)
        task = accepted_record(move.task)
        task.plan = outline.id
        self.new_tasks[task_id] = task
        self._plans[outline.id] = outline, move.now_ms
        steps = [StepRecord(task_id, at, BLOCKED) for at in range(len(outline.before))]
        known = self._tasks[task_id] = RoutedTask(task, outline, steps, move.task.message)
        course = self._courses[task_id] = self._new_course(known, outline)
        effect = course.begin(move.now_ms, not_before_ms=move.task.due_ms)
        return self._did(known, course, effect, move.now_ms)

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
            self._messages.reply(known, answer, [plain(queue) for queue in queues])
        return answer

    def _end_step(self, move: StepEnd) -> Answer:
        task_id = plain(move.task_id)
        course = self._course(task_id)
        if course is None:
            return _unknown(move.now_ms)
        known = self._tasks[task_id]
        effect = course.end(move if move.error is None else _bounded(move))
        if effect.verdict is TAKEN and move.outcome is OK:
            known.given_bytes += len(move.output)
            if known.task.standing == _WAITING:
                known.task.standing = _RUNNING
                if known.task.id not in self.new_tasks:
                    self._begun[known.task.id] = known.task
        return self._did(known, course, effect, move.now_ms, told=move)

    def _move_step(self, move: StepLost | StepDue) -> Answer:
        task_id = plain(move.task_id)
        course = self._course(task_id)
        if course is None:
            return _unknown(move.now_ms)
        if isinstance(move, StepLost):
            effect = course.lose(move)
        else:
            effect = course.due(move, is_unsent=self._is_unsent(course, move.step))
        return self._did(self._tasks[task_id], course, effect, move.now_ms)

    def _is_unsent(self, course: Course, step: int) -> bool:
        """Also what these moves send."""
        key = course.out_at(step)
        if key is None:
            return False
        return self._messages.has_attempt(course, step) or key in self._unsent or self._notes.debts.owes(key)

    def _cancel(self, move: CancelTask) -> Answer:
        task_id = plain(move.task_id)
        course = self._course(task_id)
        if course is None:
            return _unknown(move.now_ms)
        return self._did(self._tasks[task_id], course, course.cancel(move.now_ms), move.now_ms)

    def _rerun(self, move: Rerun) -> Answer:
        task_id = plain(move.task_id)
        course = self._course(task_id)
        if course is None:
            return _unknown(move.now_ms)
        known = self._tasks[task_id]
        if not known.task.has_message:  # its input was forgotten
            return Answer(move.now_ms, Effect(verdict=Verdict.LATE))
        effect = course.rerun(move.now_ms)
        if effect.verdict is TAKEN:
            reopen(known.task, run=known.task.run + 1)
            self._change(known.task, with_result=True)
        return self._did(known, course, effect, move.now_ms)

    # --- Messages -----------------------------------------------------------------------------------

    def wanted(self) -> Wanted:
        """What is missing for what `build` would build now."""
        return self._messages.wanted()

    def give(
        self,
        *,
        messages: Mapping[str, bytes | None],
        results: Mapping[str, bytes | None],
        outputs: Mapping[tuple[str, int], bytes | None],
    ) -> None:
        """What was wanted. None: it is not there any more."""
        for task_id, blob in messages.items():
            self._tasks[task_id].request = unpack_message(blob) if blob is not None else NO_REQUEST
        for task_id, blob in results.items():
            self._tasks[task_id].task.result = blob
        for (task_id, step), output in outputs.items():
            self._tasks[task_id].steps[step].output = output
            self._tasks[task_id].given_bytes += len(output or b"")

    def build(self) -> bool:
        """The messages for what has happened. True: that made more to build, such as the end of a step whose input
        cannot be put together."""
        is_left = self._messages.build()
        for task in self._messages.ended:
            self._change(task, with_result=True)
        return is_left

    # --- Bookkeeping --------------------------------------------------------------------------------

    def _course(self, task_id: str) -> Course | None:
        """None: there is no such routed task."""
        course = self._courses.get(task_id)
        if course is None:
            known = self._tasks.get(task_id)
            if known is None or known.outline is None:
                return None
            course = self._courses[task_id] = self._new_course(known, known.outline)
        return course

    def _new_course(self, known: RoutedTask, outline: Outline) -> Course:
        return Course(
            outline,
            known.steps,
            is_open=known.task.standing in OPEN,
            route=self._route,
            settings=self._settings,
            random=self._random,
            input_bytes=0 if known.request is None else len(known.request.body),
        )

    def _is_open(self, task: TaskRecord) -> bool:
        """Also while its end is yet to be built."""
        course = self._courses.get(task.id)
        return task.standing in OPEN if course is None else course.is_open

    def _did(
        self, known: RoutedTask, course: Course, effect: Effect, now_ms: int, *, told: StepEnd | None = None
    ) -> Answer:
        answer = Answer(now_ms, effect, known.task)
        self._messages.follow(known, course, effect, answer, told=told)
        return answer

    def _change(self, task: TaskRecord, *, with_result: bool = False) -> None:
        if task.id in self.new_tasks:
            return  # it is inserted with all it has
        self._changed[task.id] = task
        if with_result:
            self._with_result.add(task.id)


def _unknown(now_ms: int) -> Answer:
    return Answer(now_ms, Effect(verdict=Verdict.UNKNOWN))


def _bounded(move: StepEnd) -> StepEnd:
    """With an error that a row can keep, its type first."""
    error = f"{move.error_type}: {move.error}" if move.error_type else move.error or ""
    return msgspec.structs.replace(move, error=plain(error[:MAX_ERROR_CHARS]))
