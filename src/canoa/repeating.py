"""Trying again: the store or the broker is away, and what is in hand must neither be lost nor hold up the rest."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from canoa.errors import BrokerUnreachable, CanoaError, DeliveryUnknown, StoreFull, StoreUnreachable, WrongUse
from canoa.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = get_logger(__name__)

REPEAT_AFTER_S: Final = 1.0
"""Between tries of what the store or the broker could not take: asking faster does not bring them back."""


def is_lasting(error: CanoaError) -> bool:
    """Whether the store can never keep it, or the broker never carry it. Every other trouble may pass."""
    return type(error) is WrongUse  # below it: settings and rights, which somebody may put right


class Errands:
    """Small jobs that end by themselves; tried again while the store or the broker is away, until `stop`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Callable[[], Awaitable[None]], name: str) -> asyncio.Task[None]:
        task = self._loop.create_task(self._repeat(work, name), name=f"errand.{name}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def stop(self) -> None:
        """What they were for is not acknowledged: another process sees to it."""
        for task in self._running:
            task.cancel()

    async def _repeat(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        while True:
            try:
                return await work()
            except (StoreUnreachable, StoreFull, BrokerUnreachable, DeliveryUnknown) as exc:
                log.warning("errand_waits", errand=name, reason=str(exc))
            except CanoaError as exc:
                log.error("errand_failed", errand=name, reason=str(exc))
                return None
            await asyncio.sleep(REPEAT_AFTER_S)
