"""What the nodes of the fault tests run: actions that take their time, or wait for a file."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from pathlib import Path

from canoa import Canoa, Context, Layer, Placement

app = Canoa("plant")


@app.action(timeout=20, retry=3)
async def double(number: int, *, seconds: float = 0.0) -> int:
    await asyncio.sleep(seconds)
    return 2 * number


@app.action(timeout=20, retry=3)
async def add(number: int, more: int) -> int:
    return number + more


@app.action(timeout=20, retry=3)
async def stumble(ctx: Context, number: int, more: int, *, times: int = 1) -> int:
    """Adds like `add`, once it has failed so many times."""
    if ctx.attempt <= times:
        raise RuntimeError(f"stumbled over {number}")
    return number + more


@app.action(timeout=20, retry=3)
async def listed(first: int, second: int, third: int) -> list[int]:
    return [first, second, third]


@app.action(timeout=60, retry=3)
async def hold(ctx: Context, folder: str) -> str:
    """Says who runs it by a file of the node's name, and ends once there is a file `release`."""
    (Path(folder) / ctx.node_id).touch()
    while not (Path(folder) / "release").exists():  # noqa: ASYNC110  # another process makes it
        await asyncio.sleep(0.02)
    return ctx.node_id


@app.action(timeout=60, retry=3)
async def tally(folder: str) -> int:
    """Says which run it is, by a file that grows with each, and ends once there is a file `release`."""
    runs = Path(folder) / "runs"
    with runs.open("ab") as grows:
        grows.write(b".")
    run = runs.stat().st_size
    while not (Path(folder) / "release").exists():  # noqa: ASYNC110  # another process makes it
        await asyncio.sleep(0.02)
    return run


@app.action(timeout=60, retry=0, placement=Placement(layers=(Layer.EDGE, Layer.CLOUD)))
async def weigh(ctx: Context, folder: str, *, number: int = 0, size_bytes: int = 0) -> str:
    """Ends once there is a file of that number, with the node's name and so many bytes that can hardly be packed."""
    while not (Path(folder) / str(number)).exists():  # noqa: ASYNC110  # another process makes it
        await asyncio.sleep(0.02)
    return ctx.node_id + base64.b64encode(os.urandom(size_bytes)).decode()


@app.action(timeout=1, retry=5)
async def told_at() -> float:
    return time.time()


DOWNHILL = (Layer.EDGE, Layer.FOG, Layer.CLOUD)


@app.action(timeout=20, retry=3, placement=Placement(layers=DOWNHILL, spill_queue=2))
async def where(ctx: Context, *, seconds: float = 0.0, folder: str = "") -> str:
    """At the edge, while there is room. `folder`: where it waits for a file `release`."""
    await asyncio.sleep(seconds)
    while folder and not (Path(folder) / "release").exists():  # noqa: ASYNC110  # another process makes it
        await asyncio.sleep(0.05)
    return ctx.node_id


@app.action(timeout=20, retry=3, placement=Placement(layers=DOWNHILL, spill_queue=12))
async def steady(ctx: Context, *, seconds: float) -> str:
    """Where there is room for some more."""
    await asyncio.sleep(seconds)
    return ctx.node_id


@app.action(timeout=20, retry=3, placement=Placement(layers=DOWNHILL, spill_p95_s=1.0))
async def quick(ctx: Context, folder: str) -> str:
    """At the edge, while that is quick: it is not while there is a file `slow-` and the node's name."""
    if (Path(folder) / f"slow-{ctx.node_id}").exists():
        await asyncio.sleep(1.3)
    return ctx.node_id


@app.action(timeout=20, retry=3, placement=Placement(labels={"arm": "yes"}))
async def lift(ctx: Context) -> str:
    """Nobody can without an arm."""
    return ctx.node_id


@app.action(timeout=20, retry=3)
async def take(ctx: Context) -> str:
    return ctx.node_id


@app.action(timeout=20, retry=3)
async def develop(ctx: Context, film: str) -> list[str]:
    """Where its film came from, and who developed it."""
    return [film, ctx.node_id]


@app.action(timeout=20, retry=3)
async def noted(number: int, folder: str, *, seconds: float = 0.0) -> int:
    """Doubles it, and notes each run in a file."""
    with (Path(folder) / "noted").open("a") as runs:
        runs.write(f"{number}\n")
    await asyncio.sleep(seconds)
    return 2 * number
