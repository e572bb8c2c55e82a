"""How long a command may wait in all: what its user gave, for linking, asking and waiting together."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from canoa.broker.opening import no_link

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from canoa.app import Canoa
    from canoa.errors import CanoaError

GRACE_S: Final = 1.0
"""For an answer that is on its way when a wait is over, and for a last look after it."""


class Limit:
    """Runs from when it is made. None: there is none."""

    def __init__(self, within_s: float | None = None) -> None:
        self._within_s = within_s
        self._ends_s = math.inf if within_s is None else time.monotonic() + within_s

    def left_s(self, at_most_s: float, *, wait_s: float = 0.0) -> float:
        """How long one more exchange may take, which would take so long at most. `wait_s`: of that, who answers waits
        for a task's end."""
        return min(at_most_s, max(wait_s + GRACE_S, self._ends_s - time.monotonic()))

    @asynccontextmanager
    async def kept(self, late: Callable[[str], CanoaError], what: str, *, wait_s: float = 0.0) -> AsyncIterator[None]:
        """Raises `late` of a text that begins with `what` where the block takes longer than is left."""
        bound = asyncio.timeout(None if self._within_s is None else self.left_s(math.inf, wait_s=wait_s))
        try:
            async with bound:
                yield
        except TimeoutError as exc:
            if not bound.expired():  # some errors of ours are such, too
                raise
            raise late(f"{what} within {self._within_s:g} s") from exc


NO_LIMIT: Final = Limit()


async def linked(app: Canoa, limit: Limit) -> None:
    """Return once there is a link to the broker. Raises `BrokerUnreachable`, and what the broker refuses."""
    async with limit.kept(no_link, ""):
        await app.session()
