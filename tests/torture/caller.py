"""The one who submits, calls and waits: at a steady pace, whatever the workers and the broker go through."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

import msgspec
from tests.torture.actions import wait_in_thread, wait_on_loop

from canoa.errors import BrokerUnreachable, CanoaError, DeliveryUnknown

if TYPE_CHECKING:
    from collections.abc import Awaitable

LONGEST_RUN_S = 0.2
SHARE_IN_THREADS = 0.25
SHARE_OF_CALLS = 0.5  # the others are submitted first: accepted for good, and put on disk


class Ledger(msgspec.Struct):
    """Every task whose result is owed, and what came of it. `refused`: never accepted, as the caller was told."""

    waiting: set[str] = msgspec.field(default_factory=set)
    answered: int = 0
    refused: int = 0
    wrong: list[str] = msgspec.field(default_factory=list)
    slowest_s: float = 0.0
    slowest: str = ""

    @property
    def accepted(self) -> int:
        return self.answered + len(self.waiting)

    def note_time(self, name: str, seconds: float) -> None:
        if seconds > self.slowest_s:
            self.slowest_s, self.slowest = seconds, name

    def broken(self) -> list[str]:
        return [f"no result for {name}" for name in sorted(self.waiting)] + self.wrong


class Caller:
    def __init__(self, rate: float) -> None:
        self.ledger = Ledger()
        self._rate = rate
        self._tasks: set[asyncio.Task[None]] = set()
        self._begun = 0

    async def submit_for_ever(self) -> None:
        began_s = time.monotonic()
        while True:
            self._begun += 1
            task = asyncio.create_task(self._one(self._begun), name=f"caller[{self._begun}]")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(max(0.0, began_s + self._begun / self._rate - time.monotonic()))

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
        seconds = random.uniform(0, LONGEST_RUN_S)
        if random.random() < SHARE_OF_CALLS:
            await self._answer(number, f"call {number}", action.call(number, seconds=seconds))
            return
        try:
            handle = await action.submit(number, seconds=seconds)
        except (BrokerUnreachable, DeliveryUnknown):
            self.ledger.refused += 1
        else:
            await self._answer(number, f"task {handle.id}", handle.result())

    async def _answer(self, number: int, name: str, result: Awaitable[int]) -> None:
        began_s = time.monotonic()
        self.ledger.waiting.add(name)
        try:
            answer = await result
        except CanoaError as exc:
            self.ledger.wrong.append(f"{name} ended with {exc!r}")
        else:
            if answer != number:
                self.ledger.wrong.append(f"{name} answered {answer}, not {number}")
        self.ledger.waiting.remove(name)
        self.ledger.answered += 1
        self.ledger.note_time(name, time.monotonic() - began_s)
