"""A shop whose actions write down what they did into a folder's `journal`, and wait for files or break over them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from canoa import Canoa

app = Canoa("plant")


def write(folder: str, line: str) -> None:
    with (Path(folder) / "journal").open("a") as journal:
        journal.write(f"{line}\n")


@app.action(timeout=30)
async def charge(folder: str, cents: int) -> str:
    write(folder, f"charged {cents}")
    return f"receipt of {cents}"


@app.action(timeout=30)
async def refund(input: dict[str, Any], output: str | None) -> None:
    """Fails while there is a file `bank-is-closed`."""
    if (Path(input["folder"]) / "bank-is-closed").exists():
        raise RuntimeError("the bank is closed")
    write(input["folder"], f"refunded {input['cents']} by {output}")


@app.action(timeout=30)
async def reserve(folder: str) -> int:
    write(folder, "reserved")
    return 7


@app.action(timeout=60)
async def release(input: dict[str, Any], output: int | None) -> None:
    """Says by a file `releasing` that it runs, and ends once there is a file `go-on`."""
    folder = Path(input["folder"])
    (folder / "releasing").touch()
    while not (folder / "go-on").exists():  # noqa: ASYNC110  # another process makes it
        await asyncio.sleep(0.02)
    write(input["folder"], f"released {output}")


@app.action(timeout=30)
async def ship(folder: str) -> str:
    """Fails while there is a file `no-truck`, and hangs for longer than it may while there is `lost-truck`."""
    if (Path(folder) / "no-truck").exists():
        raise RuntimeError("no truck")
    write(folder, "shipped")
    (Path(folder) / "shipped").touch()
    if (Path(folder) / "lost-truck").exists():
        await asyncio.sleep(60)
    return "on its way"


@app.action(timeout=30)
async def fetch_back(done: dict[str, Any]) -> None:
    write(done["input"]["folder"], f"fetched back {done['output']}")
