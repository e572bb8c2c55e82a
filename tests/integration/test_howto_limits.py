"""The pages on limits and delays tell the truth: what they show can be run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from canoa import Canoa

PAGES = Path(__file__).parents[2] / "docs" / "howto"
BLOCKS = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.fixture(autouse=True)
def on_the_memory_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANOA_BROKER", "memory://")


def shown(page: str) -> dict[str, Any]:
    """What the page's code defines."""
    defined: dict[str, Any] = {"__name__": "shown"}
    for block in BLOCKS.findall((PAGES / page).read_text()):
        exec(compile(block, page, "exec"), defined)
    return defined


async def test_the_limited_actions_of_the_page_run() -> None:
    page = shown("limit-rates.md")
    app: Canoa = page["app"]

    async with app, app.worker():
        await page["send_mail"].call("a@example.org")
        await page["charge"].call(1, 250)
        await page["export"].call(1)
        await page["train"].call("small")


async def test_the_delayed_submits_of_the_page_are_taken() -> None:
    page = shown("delay.md")
    app: Canoa = page["app"]

    async with app, app.worker():
        await page["later"]()
