"""Looks up the names of nodes, in threads of its own.

Those that a program has by default are few, and everybody's: some names that nobody answers for would keep all others
waiting, and a node that is well would be taken for one that does not answer.
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aiohttp.abc import AbstractResolver, ResolveResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Found: TypeAlias = tuple[int, int, int, str, tuple[int | str | bytes, ...]]

THREADS: Final = 128
"""More than a prober looks at at once (`manager/probing.py`). They are made as they are needed."""


class Names(AbstractResolver):
    """`look_up`: as `socket.getaddrinfo`, which blocks."""

    def __init__(self, look_up: Callable[..., Sequence[Any]] = socket.getaddrinfo) -> None:
        self._look_up = look_up
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="canoa-names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        look = partial(self._look_up, host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
        found: Sequence[Found] = await asyncio.get_running_loop().run_in_executor(self._threads, look)
        return [
            ResolveResult(
                hostname=host,
                host=str(place[0]),
                port=int(place[1]),
                family=int(of_family),
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for of_family, _, protocol, _, place in found
        ]

    async def close(self) -> None:
        """Without those that still wait for an answer: nobody can call them back."""
        self._threads.shutdown(wait=False, cancel_futures=True)
