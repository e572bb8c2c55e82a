"""Many changes, one transaction: whatever comes while the store is busy goes with the next group.

So a quiet store answers at once, and a busy one pays for a file sync once per group, not once per change.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from canoa.errors import CanoaError, SettingError, StoreFull, StoreUnreachable, WrongUse
from canoa.logs import get_logger
from canoa.store.port import Answer, Change
from canoa.store.telling import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

log = get_logger(__name__)

GROUP: Final = 500
"""Changes in one transaction. More spares little, and lets the first ones wait for the last."""

SOON: Final = 128
"""Changes that a store which starts at once is not kept waiting for, in the middle of a turn of the loop: what follows
from them may leave while the next ones are read."""

TRIES: Final = 5
"""Of a change over which the store fails, alone, in a way that it does not know: from then on it is refused, since it
would be brought again for ever."""
MAX_FAILING: Final = 10_000
"""How many such changes are remembered."""

C = TypeVar("C")
A = TypeVar("A")
C_contra = TypeVar("C_contra", contravariant=True)
A_co = TypeVar("A_co", covariant=True)


class Applies(Protocol[C_contra, A_co]):
    """A store, or what stands before one: all of the changes in one transaction, and one answer each."""

    async def apply(self, changes: Sequence[C_contra]) -> Sequence[A_co]: ...


class Starts(Protocol[C_contra, A_co]):
    """A store that takes the next group before it has answered for the last: `on_end` hears of it."""

    def __call__(
        self, changes: Sequence[C_contra], on_end: Callable[[Sequence[A_co] | Exception], None], /, *, is_hurried: bool
    ) -> None: ...


class Grouping(Generic[C, A]):
    """Answers in the order in which the changes came, as long as they can be written. What was given before `aclose` is
    still written.

    A store with `start` gets what comes first in a turn of the loop at once, and what follows together."""

    def __init__(
        self,
        store: Applies[C, A],
        *,
        start: Starts[C, A] | None = None,
    ) -> None:
        self._store = store
        self._start_with = start
        self._started = 0  # groups that are not answered
        self._is_gathering = False  # until the end of this turn of the loop
        self._is_hurried = False  # somebody waits for one of those that wait
        self._all_answered = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[C, Callable[[A | CanoaError], None]]] = deque()
        self._whole: deque[tuple[Sequence[C], Callable[[Sequence[A] | CanoaError], None]]] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._failures: dict[str, int] = {}  # of changes that failed alone, by what they are about

    def post(self, change: C, on_answer: Callable[[A | CanoaError], None], *, is_hurried: bool = False) -> None:
        """Write it with the next group; `on_answer` hears the store's answer, or why it was not
        written: an error that is another change's own is not told. `is_hurried`: somebody waits for it."""
        self._waiting.append((change, on_answer))
        self._is_hurried = self._is_hurried or is_hurried
        if self._start_with is None:
            self._start()
        elif not self._is_gathering:
            self._is_gathering = True
            self._loop.call_soon(self._end_turn)
            self._give(self._start_with)
        elif len(self._waiting) >= SOON:
            self._give(self._start_with)

    @property
    def has_waiting(self) -> bool:
        """Something goes with the next group."""
        return bool(self._waiting)

    def _start(self) -> None:
        if self._writing is None:
            self._writing = self._loop.create_task(self._write(), name="store.write")

    async def apply(self, change: C) -> Any:
        """The store's answer, once it is on disk."""
        answered: asyncio.Future[A | CanoaError] = self._loop.create_future()
        self.post(change, partial(_resolve, answered), is_hurried=True)
        answer = await answered
        if isinstance(answer, CanoaError):
            raise answer
        return answer

    def post_all(self, changes: Sequence[C], on_answer: Callable[[Sequence[A] | CanoaError], None]) -> None:
        """As one group, all or nothing: for those who promise that to their own caller."""
        if self._start_with is None:
            self._whole.append((changes, on_answer))
            self._start()
        else:
            on_end = partial(self._on_all_answers, changes, on_answer)
            self._begin(self._start_with, changes, on_end, is_hurried=bool(changes))

    async def aclose(self) -> None:
        while self._writing is not None:
            await asyncio.wait([self._writing])
        while self._waiting or self._started:
            self._all_answered.clear()
            await self._all_answered.wait()

    # --- A store that takes the next before it has answered for the last ----------------------------------

    def _end_turn(self) -> None:
        self._is_gathering = False
        if self._waiting and self._start_with is not None:
            self._give(self._start_with)

    def _give(self, start: Starts[C, A]) -> None:
        while self._waiting:
            group = [self._waiting.popleft() for _ in range(min(GROUP, len(self._waiting)))]
            changes = [change for change, _ in group]
            self._begin(start, changes, partial(self._on_answers, group), is_hurried=self._is_hurried)
        self._is_hurried = False

    def _begin(
        self,
        start: Starts[C, A],
        changes: Sequence[C],
        on_end: Callable[[Sequence[A] | Exception], None],
        *,
        is_hurried: bool,
    ) -> None:
        self._started += 1
        try:
            start(changes, on_end, is_hurried=is_hurried)
        except Exception as exc:
            on_end(exc)

    def _on_answers(
        self, group: Sequence[tuple[C, Callable[[A | CanoaError], None]]], answers: Sequence[A] | Exception
    ) -> None:
        if not isinstance(answers, Exception):
            self._forgive([change for change, _ in group] if self._failures else ())
            self._tell_all(group, answers)
        elif isinstance(answers, StoreUnreachable | StoreFull | SettingError):
            self._tell_all(group, [answers] * len(group))
        else:
            self._loop.create_task(self._write_again(group, answers), name="store.write")
            return
        self._answered()

    async def _write_again(self, group: Sequence[tuple[C, Callable[[A | CanoaError], None]]], error: Exception) -> None:
        """One by one: an error of one of them, or a bug of ours, may not hold up the others."""
        changes = [change for change, _ in group]
        self._tell_all(group, await self._answers_after(changes, error))
        self._answered()

    def _on_all_answers(
        self,
        changes: Sequence[C],
        on_answer: Callable[[Sequence[A] | CanoaError], None],
        answers: Sequence[A] | Exception,
    ) -> None:
        if isinstance(answers, Exception) and not isinstance(answers, CanoaError):
            log.error("changes_not_written", changes=len(changes), exc_info=answers)
            answers = _unknown(answers)
        tell(on_answer, answers)
        self._answered()

    def _answered(self) -> None:
        self._started -= 1
        self._all_answered.set()

    # --- One group after the other --------------------------------------------------------------------------

    async def _write(self) -> None:
        # A task starts one turn later: whatever else happens in this turn of the loop may come along.
        try:
            while self._waiting or self._whole:
                await self._write_some()
        finally:
            self._writing = None

    async def _write_some(self) -> None:
        while self._whole:
            changes, on_answers = self._whole.popleft()
            tell(on_answers, await self._all_answers(changes))
        group = [self._waiting.popleft() for _ in range(min(GROUP, len(self._waiting)))]
        self._tell_all(group, await self._answers([change for change, _ in group]) if group else [])

    def _tell_all(
        self, group: Sequence[tuple[C, Callable[[A | CanoaError], None]]], answers: Sequence[A | CanoaError]
    ) -> None:
        for (_, on_answer), answer in zip(group, answers, strict=True):
            try:  # as `tell` does: a call less for every change
                on_answer(answer)
            except Exception:
                log.exception("answer_not_taken")

    async def _all_answers(self, changes: Sequence[C]) -> Sequence[A] | CanoaError:
        try:
            return await self._store.apply(changes)
        except CanoaError as exc:
            return exc
        except Exception as exc:
            log.error("changes_not_written", changes=len(changes), exc_info=exc)
            return _unknown(exc)

    async def _answers(self, changes: list[C]) -> Sequence[A | CanoaError]:
        try:
            answers = await self._store.apply(changes)
        except (StoreUnreachable, StoreFull, SettingError) as exc:
            return [exc] * len(changes)
        except Exception as exc:
            return await self._answers_after(changes, exc)
        self._forgive(changes)
        return answers

    def _forgive(self, changes: Sequence[C]) -> None:
        """They were written."""
        if self._failures:
            for change in changes:
                self._failures.pop(_about(change), None)

    async def _answers_after(self, changes: list[C], exc: Exception) -> Sequence[A | CanoaError]:
        """Of one change, or a bug of ours: neither may hold up the others."""
        if len(changes) == 1:
            return [exc if isinstance(exc, CanoaError) else self._failed(changes[0], exc)]
        log.warning("group_written_one_by_one", changes=len(changes), reason=str(exc))
        return [answer for change in changes for answer in await self._answers([change])]

    def _failed(self, change: C, exc: Exception) -> CanoaError:
        """To be tried again, or for the last time."""
        about = _about(change)
        failures = self._failures.pop(about, 0) + 1
        log.error("change_not_written", change=about, failures=failures, exc_info=exc)
        if failures >= TRIES:
            return WrongUse(f"the store failed {failures} times over {about}: {exc!r:.200}; see the log")
        if len(self._failures) < MAX_FAILING:
            self._failures[about] = failures
        return _unknown(exc)


class GroupWriter(Grouping[Change, Answer]):
    """What recorders write with: kept tasks and how they end."""


def _about(change: object) -> str:
    """Its kind and whose it is, the same whenever it is brought again."""
    about = getattr(change, "task", None) or getattr(change, "letter", None) or change
    ids = (getattr(about, each, None) for each in ("task_id", "id", "step", "seq"))
    return " ".join([type(change).__name__, *(str(each) for each in ids if each is not None)])


def _unknown(exc: Exception) -> StoreUnreachable:
    return StoreUnreachable(f"the store failed: {exc!r:.200}")


def _resolve(answered: asyncio.Future[Any], answer: Any) -> None:
    if not answered.done():
        answered.set_result(answer)
