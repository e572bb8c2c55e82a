"""An app for the acceptance tests of routed tasks: a plan's actions, one of which a test can break and hold up."""

from __future__ import annotations

import asyncio
from pathlib import Path

from canoa import Canoa, Placement

app = Canoa("continuum")


@app.action()
async def fetch(url: str) -> dict[str, list[float]]:
    return {"values": [float(len(url)), 2.0]}


@app.action()
async def total(data: dict[str, list[float]]) -> float:
    return sum(data["values"])


@app.action(retry=0)
async def report(total: float, values: list[float], folder: str) -> str:
    """Fails while there is a file `broken`, and waits while there is one `held`."""
    if (Path(folder) / "broken").exists():
        raise ValueError("no paper")
    while (Path(folder) / "held").exists():  # noqa: ASYNC110  # another process removes it
        await asyncio.sleep(0.02)
    return f"{total:g} of {len(values)}"


@app.action(placement=Placement(near="require"))
async def inspect() -> str:
    return "seen"


summing = app.plan("summing")
summing.step(total, summing.step(fetch, url=summing.input["url"]))
