"""`action.map(…)`: many tasks, their results as they come, with a bounded number in flight."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any

from canoa.client.handle import Failed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from canoa.action import Submitting

CHUNK = 256
"""How many are submitted at once: enough to fill the broker's pipeline, few enough to see the first result soon."""


async def stream(
    action: Submitting[..., Any], calls: Iterable[Any], *, in_flight: int, return_errors: bool
) -> AsyncIterator[Any]:
    """Takes from `calls` only as results come back, so it may be endless. Leaving the loop early submits no more;
    what was submitted runs."""
    source: Iterator[Any] = iter(calls)
    ended: asyncio.Queue[Any] = asyncio.Queue()
    waiting = 0
    is_exhausted = False
    while True:
        room = min(CHUNK, in_flight - waiting)
        # A new batch once a good part of the window is free; a trickle of single submits would cost a round trip each.
        if not is_exhausted and (room >= CHUNK or room * 2 > in_flight or waiting == 0):
            batch = list(islice(source, room))
            is_exhausted = len(batch) < room
            for handle in await action.submit_many(batch):
                handle.ended.add_done_callback(ended.put_nowait)
            waiting += len(batch)
            continue
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
