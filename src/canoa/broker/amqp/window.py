"""Who may publish next while many messages wait for their confirms: first come, first let in.

Only the line is here. What counts as being in flight, `publisher.py` knows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Window:
    """Lets `size` messages be in flight at once; `in_flight` counts them."""

    def __init__(self, size: int, in_flight: Callable[[], int]) -> None:
        self._size = size
        self._in_flight = in_flight
        self._line: deque[tuple[asyncio.Future[None], float]] = deque()  # with the time at which each gives up
        self._let_in = 0  # they have a place, and will use it when the loop comes to them
        self._is_open = True

    @property
    def is_full(self) -> bool:
        return self._is_open and self._in_flight() + self._let_in >= self._size

    async def enter(self, due_s: float) -> None:
        """Return once there is room for one more, which is to be used before the next await."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((turn, due_s))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled() and turn.exception() is None:  # it was our turn: it goes to the next in line
                self._let_in -= 1
                self.move_up()
            raise
        self._let_in -= 1

    def move_up(self) -> None:
        """Let in as many as there is room for."""
        while self._line and not self.is_full:
            turn, _ = self._line.popleft()
            if not turn.done():  # given up meanwhile
                self._let_in += 1
                turn.set_result(None)

    def turn_away(self, now_s: float, reason: Callable[[], Exception]) -> None:
        """End the wait of those whose time is over."""
        while self._line and self._line[0][1] <= now_s:
            turn, _ = self._line.popleft()
            if not turn.done():
                turn.set_exception(reason())

    def open_up(self) -> None:
        """Nothing will be sent any more: let everyone in, to hear so."""
        self._is_open = False
        self.move_up()
