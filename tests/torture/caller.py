"""The one who submits and waits: at a steady pace, whatever the workers and the broker go through."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

import msgspec
from tests.torture.actions import wait_in_thread, wait_on_loop

from canoa.errors import BrokerUnreachable, CanoaError, DeliveryUnknown

if TYPE_CHECKING:
    from canoa import Handle

LONGEST_RUN_S = 0.2
SHARE_IN_THREADS = 0.25


class Ledger(msgspec.Struct):
    """Every id that was accepted, and what came of it. `refused`: never accepted, as the caller was told."""

    waiting: dict[str, int] = msgspec.field(default_factory=dict)
    answered: int = 0
    refused: int = 0
    wrong: list[str] = msgspec.field(default_factory=list)
    slowest_s: float = 0.0
    slowest_id: str = ""

    @property
    def accepted(self) -> int:
        return self.answered + len(self.waiting)

    def note_time(self, task_id: str, seconds: float) -> None:
        if seconds > self.slowest_s:
            self.slowest_s, self.slowest_id = seconds, task_id

    def broken(self) -> list[str]:
        missing = [f"no result for task {task_id} (number {number})" for task_id, number in self.waiting.items()]
        return missing + self.wrong


class Caller:
    def __init__(self, rate: float) -> None:
        self.ledger = Ledger()
        self._rate = rate
        self._tasks: set[asyncio.Task[None]] = set()
        self._submitted = 0

    async def submit_for_ever(self) -> None:
        began_s = time.monotonic()
        while True:
            self._submitted += 1
            task = asyncio.create_task(self._one(self._submitted), name=f"caller[{self._submitted}]")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(max(0.0, began_s + self._submitted / self._rate - time.monotonic()))

    async def wait_all(self, silence_s: float) -> None:
        """Until nothing is open any more, or no answer came for so long: then the ledger says what is missing."""
        ended = set(self._tasks)
        while self._tasks and ended:
            ended, _ = await asyncio.wait(self._tasks, timeout=silence_s, return_when=asyncio.FIRST_COMPLETED)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _one(self, number: int) -> None:
        action = wait_in_thread if random.random() < SHARE_IN_THREADS else wait_on_loop
        began_s = time.monotonic()
        try:
            handle: Handle[int] = await action.submit(number, seconds=random.uniform(0, LONGEST_RUN_S))
        except (BrokerUnreachable, DeliveryUnknown):
            self.ledger.refused += 1
            return
        self.ledger.waiting[handle.id] = number
        await self._answer(handle, number)
        self.ledger.note_time(handle.id, time.monotonic() - began_s)

    async def _answer(self, handle: Handle[int], number: int) -> None:
        try:
            result = await handle.result()
        except CanoaError as exc:
            self.ledger.wrong.append(f"task {handle.id} (number {number}) ended with {exc!r}")
        else:
            if result != number:
                self.ledger.wrong.append(f"task {handle.id} answered {result}, not {number}")
        del self.ledger.waiting[handle.id]
        self.ledger.answered += 1
