"""The app whose `canoa up` is killed."""

from __future__ import annotations

import asyncio

from canoa import Canoa

app = Canoa("torture")


# A task that the harness kills many times in a row is no poison: only its bad luck is tested here.
@app.action(timeout=30, max_crashes=1000)
async def wait(number: int, *, seconds: float) -> int:
    await asyncio.sleep(seconds)
    return number
