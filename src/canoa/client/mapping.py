"""`action.map(…)`: many tasks, their results as they come, with a bounded number in flight."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any

from canoa.client.handle import Failed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator

    from canoa.client.handle import Handle

CHUNK = 256
"""How many are submitted at once: enough to fill the broker's pipeline, few enough to see the first result soon."""


async def stream(
    submit_many: Callable[[list[Any]], Awaitable[list[Handle[Any]]]],
    calls: Iterable[Any],
    *,
    in_flight: int,
    return_errors: bool,
) -> AsyncIterator[Any]:
    """Takes from `calls` only as results come back, so it may be endless. Leaving the loop early submits no more;
    what was submitted runs."""
    # A trickle of single submits would cost a round trip each, so room is filled a quarter of the window at a time.
    worth_filling = min(CHUNK, max(1, in_flight // 4))
    source: Iterator[Any] = iter(calls)
    ended: asyncio.Queue[Any] = asyncio.Queue()
    waiting = 0
    is_exhausted = False
    while True:
        if in_flight - waiting >= worth_filling:
            while waiting < in_flight and not is_exhausted:
                room = min(CHUNK, in_flight - waiting)
                batch = list(islice(source, room))
                is_exhausted = len(batch) < room
                for handle in await submit_many(batch):
                    handle.on_ended(ended.put_nowait)
                waiting += len(batch)
        if waiting == 0:
            return
        outcome = (await ended.get()).result()
        waiting -= 1
        if not isinstance(outcome, Failed):
            yield outcome
        elif return_errors:
            yield outcome.error
        else:
            raise outcome.error
