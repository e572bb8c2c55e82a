"""The limit that somebody gives a command is one of all that it does, also where nobody says a word."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from canoa import Canoa
from canoa.cli import serving
from canoa.cli.program import program
from canoa.client import limit
from canoa.errors import BrokerUnreachable
from canoa.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

LIMIT_S = 0.1
AT_MOST_S = 5.0  # without a limit it is ten, or thirty


@pytest.fixture
def mute() -> Iterator[str]:
    """An address at which everybody is let in, and nobody is answered."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield "{}:{}".format(*listening.getsockname())


COMMANDS = [
    ["submit", "shop.double", "{}", "--wait", str(LIMIT_S)],
    ["submit", "power-factor", "{}", "--wait", str(LIMIT_S)],
    ["result", "any", "--wait", str(LIMIT_S)],
    ["call", "shop.double", "{}", "--timeout", str(LIMIT_S)],
]


@pytest.mark.parametrize("way", ["CANOA_BROKER", "CANOA_API"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_a_command_ends_within_its_limit_where_nobody_says_a_word(
    mute: str, way: str, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit, "GRACE_S", LIMIT_S)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(way, f"amqp://{mute}" if way == "CANOA_BROKER" else f"http://{mute}")
    monkeypatch.setenv("CANOA_API_TOKEN", "a-token")

    began_s = time.monotonic()
    told = CliRunner().invoke(program(command), command)

    assert time.monotonic() - began_s < AT_MOST_S
    assert told.exit_code == 1
    assert "no link to the broker within 0.1 s" in told.stderr or "no answer from the API" in told.stderr


async def test_a_worker_waits_for_a_mute_broker_as_long_as_it_is_told_to(mute: str) -> None:
    app = Canoa("shop", broker=f"amqp://{mute}")
    app.action(name="one")(lambda: 1)

    async with asyncio.timeout(AT_MOST_S):
        with pytest.raises(BrokerUnreachable, match=r"no link to the broker within 0\.1 s; check that it runs"):
            async with app.worker_with(WorkerSettings(link_within_s=LIMIT_S)):
                pass


async def test_what_is_tried_again_is_told_how_much_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "TRY_AGAIN_AFTER_S", 0.01)
    told: list[float] = []

    def part(left_s: float) -> AbstractAsyncContextManager[None]:
        told.append(left_s)
        return _away() if len(told) < 3 else _there()

    async with AsyncExitStack() as stack:
        await serving.entered(part, stack, asyncio.Event(), within_s=60)

    assert 60 >= told[0] > told[1] > told[2] > 50


@asynccontextmanager
async def _away() -> AsyncIterator[None]:
    raise BrokerUnreachable("not yet")
    yield


@asynccontextmanager
async def _there() -> AsyncIterator[None]:
    yield
