"""A way to managers that is none: a test brings messages by it, reads what is answered, and closes it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.integration.routed.bare_manager import read_answer

from canoa.errors import BrokerUnreachable
from canoa.wire import bundle
from canoa.worker.uplinks.port import Uplink, UplinkDelivery

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.integration.routed.bare_manager import Answered

    from canoa.broker.port import Message, OnDelivery, PublishOutcome

WITHIN_S = 10.0


class PaperUplink:
    ear = None

    def __init__(self, way: str) -> None:
        self.way = way
        self.is_open = self.is_reachable = self.is_registered = True
        self.answers: asyncio.Queue[Answered] = asyncio.Queue()
        self.has_left = False
        self._on_message: OnDelivery | None = None

    # --- As the worker sees it ----------------------------------------------------------------------

    async def start(self, on_message: OnDelivery) -> None:
        self._on_message = on_message

    def duties(self) -> list[Coroutine[Any, Any, None]]:
        return []

    def renew(self) -> None: ...

    def send(self, message: Message, on_outcome: Callable[[PublishOutcome], None]) -> None:
        asyncio.get_running_loop().call_soon(self._take, message, on_outcome, self.is_open)

    def _take(self, message: Message, on_outcome: Callable[[PublishOutcome], None], is_open: bool) -> None:
        """The test sees an answer once the worker knows that it was taken."""
        on_outcome(None if is_open else BrokerUnreachable("closed by the test"))
        if is_open:
            self.answers.put_nowait(read_answer(message))

    async def leave(self) -> None:
        self.has_left = True

    async def aclose(self) -> None:
        self.is_open = False

    # --- As the test does ---------------------------------------------------------------------------

    def bring(self, *messages: Message) -> UplinkDelivery:
        """One message, or all of them as one."""
        assert self._on_message is not None
        message = messages[0] if len(messages) == 1 else bundle.packed(messages)[0][0]
        delivery = UplinkDelivery(message, self, self._on_message)
        self._on_message(delivery)
        return delivery

    async def answer(self) -> Answered:
        async with asyncio.timeout(WITHIN_S):
            return await self.answers.get()


_port: Callable[[str], Uplink] = PaperUplink
