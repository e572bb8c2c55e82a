"""Moves on their way through the store: grouped, written, then acted upon.

What a move owes was written with it, so after the commit nothing of it depends on this process any more.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from canoa.errors import CanoaError
from canoa.logs import get_logger
from canoa.repeating import is_lasting
from canoa.store.grouping import Grouping
from canoa.store.routed_port import DEFAULT_SETTINGS, DecidesAhead
from canoa.store.telling import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from canoa.execution.step_moves import Route
    from canoa.execution.step_settings import StepSettings
    from canoa.store.routed_port import Move, Moved, Owed, RoutedStore

log = get_logger(__name__)

T = TypeVar("T")

PAY_WITHIN_S: Final = 0.2
"""How long a payment may wait for moves to go along with. Longer spares transactions while little happens, and sends
more of it again should this process be killed."""


class Moving:
    """`after` hears all moves that a kill cannot undo any more, before whoever gave it hears that it is on disk;
    `ahead` what may be sent before."""

    def __init__(
        self,
        store: RoutedStore,
        route: Route,
        after: Callable[[Sequence[Move], Sequence[Moved]], None],
        *,
        ahead: Callable[[Sequence[Owed]], None],
        settings: StepSettings = DEFAULT_SETTINGS,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._door = _Door(store, route, settings, ahead=ahead, after=after, on_returned=self._pay_soon)
        start = self._door.start if self._door.decides_ahead else None
        self._moves: Grouping[Move, Moved] = Grouping(self._door, start=start)
        self._paying: asyncio.TimerHandle | None = None
        self._is_closed = False

    def post(self, move: Move, on_answer: Callable[[Moved | CanoaError], None]) -> None:
        """Write it with the next group; `on_answer` hears what it did, or why it was not written."""
        self._moves.post(move, on_answer)

    async def apply(self, move: Move) -> Moved:
        """What it did, once it is on disk."""
        answered: asyncio.Future[Moved | CanoaError] = self._loop.create_future()
        self._moves.post(move, partial(_resolve, answered), is_hurried=True)
        answer = await answered
        if isinstance(answer, CanoaError):
            raise answer
        return answer

    async def apply_all(self, moves: Sequence[Move]) -> Sequence[Moved]:
        """As one transaction, all or nothing."""
        answered: asyncio.Future[Sequence[Moved] | CanoaError] = self._loop.create_future()
        self._moves.post_all(moves, partial(_resolve, answered))
        answers = await answered
        if isinstance(answers, CanoaError):
            raise answers
        return answers

    def pay(self, keys: Iterable[str]) -> None:
        """They were sent: written with the moves that come next, or alone if none do."""
        if not self._is_closed:  # otherwise they are sent once more: harmless
            self._door.paid += keys
            self._pay_soon()

    async def aclose(self) -> None:
        """What was given before is still written."""
        self._is_closed = True
        if self._paying is not None:
            self._paying.cancel()
        self._pay()
        await self._moves.aclose()

    def _pay_soon(self) -> None:
        if self._door.paid and self._paying is None and not self._is_closed:
            self._paying = self._loop.call_later(PAY_WITHIN_S, self._pay)

    def _pay(self) -> None:
        self._paying = None
        if self._moves.has_waiting:  # they go along
            self._pay_soon()
        elif self._door.paid:
            self._moves.post_all((), self._on_paid)

    def _on_paid(self, answer: Sequence[Moved] | CanoaError) -> None:
        door = self._door
        if isinstance(answer, CanoaError) and is_lasting(answer):
            log.error("payments_not_kept", payments=len(door.paid), reason=str(answer))
            door.paid = []  # they are sent once more: harmless
        elif isinstance(answer, CanoaError):
            log.warning("payments_wait", payments=len(door.paid), reason=str(answer))
        self._pay_soon()


class _Door:
    """Into the store: every group takes along the payments that wait. `on_returned`: some must be said again."""

    def __init__(
        self,
        store: RoutedStore,
        route: Route,
        settings: StepSettings,
        *,
        ahead: Callable[[Sequence[Owed]], None],
        after: Callable[[Sequence[Move], Sequence[Moved]], None],
        on_returned: Callable[[], None],
    ) -> None:
        self._store = store
        self._store_ahead = store if isinstance(store, DecidesAhead) else None  # asked once: it takes long
        self._ahead = ahead
        self._after = after
        self._route = route
        self._settings = settings
        self._on_returned = on_returned
        self.paid: list[str] = []

    @property
    def decides_ahead(self) -> bool:
        return self._store_ahead is not None

    async def apply(self, moves: Sequence[Move]) -> Sequence[Moved]:
        paid, self.paid = self.paid, []
        try:
            answers = await self._store.advance(moves, self._route, paid=paid, settings=self._settings)
        except BaseException as exc:
            self._not_paid(paid, exc)
            raise
        self._on_committed(moves, answers)
        return answers

    def start(
        self, moves: Sequence[Move], on_end: Callable[[Sequence[Moved] | Exception], None], *, is_hurried: bool
    ) -> None:
        """Of a store that decides ahead."""
        assert self._store_ahead is not None
        paid, self.paid = self.paid, []
        self._store_ahead.start_advance(
            moves,
            self._route,
            paid=paid,
            settings=self._settings,
            ahead=self._ahead,
            on_committed=partial(self._on_committed, moves),
            on_end=partial(self._on_end, paid, on_end),
            is_hurried=is_hurried,
        )

    def _on_committed(self, moves: Sequence[Move], answers: Sequence[Moved]) -> None:
        tell(self._after, moves, answers)

    def _on_end(
        self,
        paid: list[str],
        on_end: Callable[[Sequence[Moved] | Exception], None],
        answers: Sequence[Moved] | Exception,
    ) -> None:
        if isinstance(answers, Exception):
            self._not_paid(paid, answers)
        on_end(answers)

    def _not_paid(self, paid: list[str], why: BaseException) -> None:
        if isinstance(why, CanoaError | asyncio.CancelledError):
            self.paid += paid
            self._on_returned()
        else:  # perhaps over these, for ever: they are sent once more, which is harmless
            log.error("payments_not_kept", payments=len(paid), reason=repr(why))


def _resolve(answered: asyncio.Future[T], answer: T) -> None:
    if not answered.done():
        answered.set_result(answer)
