"""Names of nodes are looked up beside each other: those that nobody answers for keep no others waiting."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from canoa.transports.names import THREADS, Names

LOOKED_AT_AT_ONCE = 100


async def test_names_that_nobody_answers_for_keep_no_other_waiting() -> None:
    is_over = threading.Event()

    def look_up(host: str, port: int, **options: Any) -> Any:
        if host.startswith("slow"):
            is_over.wait(30)
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return socket.getaddrinfo(host, port, **options)

    assert THREADS > LOOKED_AT_AT_ONCE
    names = Names(look_up)
    slow = [asyncio.create_task(names.resolve(f"slow-{number}")) for number in range(LOOKED_AT_AT_ONCE)]
    try:
        found = await asyncio.wait_for(names.resolve("localhost", 8430, socket.AF_INET), 10)
    finally:
        is_over.set()
        outcomes = await asyncio.gather(*slow, return_exceptions=True)
        await names.close()

    assert [(each["host"], each["port"], each["family"]) for each in found] == [("127.0.0.1", 8430, socket.AF_INET)]
    assert {type(each) for each in outcomes} == {socket.gaierror}


async def test_a_name_that_cannot_be_one_is_an_error_of_its_own() -> None:
    names = Names()
    try:
        with pytest.raises((OSError, ValueError)):
            await names.resolve("a" * 64 + ".example")
    finally:
        await names.close()
