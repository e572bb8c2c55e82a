"""Many changes, one transaction: whatever comes while the store is busy goes with the next group.

So a quiet store answers at once, and a busy one pays for a file sync once per group, not once per change.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from canoa.errors import CanoaError, StoreUnreachable, WrongUse
from canoa.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canoa.store.port import Answer, Change, Store

log = get_logger(__name__)

GROUP: Final = 500
"""Changes in one transaction. More spares little, and lets the first ones wait for the last."""


class GroupWriter:
    """Answers in the order in which the changes came. What was given before `aclose` is still written."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[Change, Callable[[Answer | CanoaError], None]]] = deque()
        self._writing: asyncio.Task[None] | None = None

    def post(self, change: Change, on_answer: Callable[[Answer | CanoaError], None]) -> None:
        """Write it with the next group; `on_answer` hears the store's answer, or the error that met the whole group."""
        self._waiting.append((change, on_answer))
        if self._writing is None:
            self._writing = self._loop.create_task(self._write(), name="recorder.write")

    async def apply(self, change: Change) -> Any:
        """The store's answer, once it is on disk."""
        answered: asyncio.Future[Answer | CanoaError] = self._loop.create_future()
        self.post(change, partial(_resolve, answered))
        answer = await answered
        if isinstance(answer, CanoaError):
            raise answer
        return answer

    async def apply_all(self, changes: list[Change]) -> list[Answer]:
        """As one group, all or nothing: for those who promise that to their own caller."""
        return await self._store.apply(changes)

    async def aclose(self) -> None:
        while self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write(self) -> None:
        # One turn later: whatever else happens in this turn of the loop may come along.
        await asyncio.sleep(0)
        while self._waiting:
            group = [self._waiting.popleft() for _ in range(min(GROUP, len(self._waiting)))]
            answers = await self._answers([change for change, _ in group])
            for (_, on_answer), answer in zip(group, answers, strict=True):
                on_answer(answer)
        self._writing = None

    async def _answers(self, changes: list[Change]) -> Sequence[Answer | CanoaError]:
        try:
            return await self._store.apply(changes)
        except WrongUse as exc:  # one of them cannot be kept at all: the others must not suffer for it
            if len(changes) == 1:
                return [exc]
            return [answer for change in changes for answer in await self._answers([change])]
        except CanoaError as exc:
            return [exc] * len(changes)
        except Exception as exc:  # a bug of ours must not leave anybody waiting
            log.exception("group_not_written", changes=len(changes))
            return [StoreUnreachable(f"the store failed: {exc!r:.200}")] * len(changes)


def _resolve(answered: asyncio.Future[Any], answer: Answer | CanoaError) -> None:
    if not answered.done():
        answered.set_result(answer)
