"""A worker without a queue at the managers' broker, or with one more way besides it: it has an address.

Managers post messages there; registrations and answers are posted to them. When to register is decided in
`registration.py`, as for every node: a manager that answers again after it did not is told at once.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from canoa.errors import CanoaError, NodeIdTaken
from canoa.logs import get_logger
from canoa.vocabulary import HTTP
from canoa.wire.bundle import is_bundle
from canoa.worker import registration
from canoa.worker.registration import State, View
from canoa.worker.uplinks.http_door import HttpDoor
from canoa.worker.uplinks.port import Uplink, UplinkDelivery
from canoa.worker.uplinks.posting import ManagerPosts

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Coroutine, Sequence

    from canoa.broker.port import Message, OnDelivery, PublishOutcome, Settlement

log = get_logger(__name__)

POLL_EVERY_S: Final = 3.0
REGISTER_EVERY_S: Final = 50.0
"""The sign of life of a node, as published."""
LEAVE_WITHIN_S: Final = 2.0

MAX_IN_HAND: Final = 200
"""Deliveries, of which one may be a bundle: more are asked to come later, and may go to others."""


class HttpUplink:
    """`said`: what the node says of itself, forced or not, or that it leaves."""

    way = HTTP
    ear = None  # it has no address of its own that it could ask

    def __init__(
        self,
        listener: socket.socket,
        managers: Sequence[str],
        *,
        node_id: str,
        said: Callable[..., Message],
        max_body_bytes: int,
        api_token: str = "",
    ) -> None:
        self._node_id = node_id
        self._said = said
        self._loop = asyncio.get_running_loop()
        self._posts = ManagerPosts(managers, node_id=node_id, api_token=api_token)
        self._door = HttpDoor(listener, self._take, token=lambda: self._token, max_body_bytes=max_body_bytes)
        self._on_message: OnDelivery = _nobody
        self._in_hand = 0
        self._reads_bundles = False  # a manager that sends them
        self._token: str | None = None
        self._view = View()
        self._forced_s = 0.0
        self._is_renewed = asyncio.Event()
        self._is_leaving = False

    @property
    def is_open(self) -> bool:
        return self._view.is_up is not False  # what was not tried yet may be

    @property
    def is_reachable(self) -> bool:
        return not self._is_leaving

    @property
    def is_registered(self) -> bool:
        return self._view.state is State.REGISTERED

    async def start(self, on_message: OnDelivery) -> None:
        self._on_message = on_message
        await self._door.open()

    def duties(self) -> list[Coroutine[Any, Any, None]]:
        return [self._stay_registered()]

    def renew(self) -> None:
        self._is_renewed.set()

    def send(self, message: Message, on_outcome: Callable[[PublishOutcome], None]) -> None:
        self._posts.answer(message, on_outcome, together=self._reads_bundles)

    async def leave(self) -> None:
        self._is_leaving = True
        self._door.close()
        with suppress(CanoaError, TimeoutError):
            async with asyncio.timeout(LEAVE_WITHIN_S):
                await self._posts.register(self._said(is_leaving=True))

    async def aclose(self) -> None:
        await self._door.aclose()
        await self._posts.aclose()

    # --- Messages ---------------------------------------------------------------------------------------

    def _take(self, message: Message) -> bool:
        if self._in_hand >= MAX_IN_HAND:
            return False
        self._in_hand += 1
        self._reads_bundles |= is_bundle(message)
        delivery = UplinkDelivery(message, self, self._on_message, self._on_settled)
        try:
            delivery.come()
        except Exception:  # a bug of ours: its sender hears so, and it must not take a place for ever
            delivery.settle()
            raise
        return True

    def _on_settled(self, _: Settlement) -> None:
        self._in_hand -= 1

    # --- Registering ------------------------------------------------------------------------------------

    async def _stay_registered(self) -> None:
        """Raises `NodeIdTaken`."""
        self.renew()
        while not self._is_leaving:
            if self._is_renewed.is_set():
                self._is_renewed.clear()
                await self._feed(registration.Renewed())
            known = self._posts.manager_id
            is_up = await self._posts.is_up()
            await self._feed(registration.Polled(is_up))
            if known and self._posts.manager_id != known:  # it was started anew between two looks, or is another one
                await self._feed(registration.Renewed())
            if is_up and self._loop.time() >= self._forced_s + REGISTER_EVERY_S:
                self._forced_s = self._loop.time()
                await self._feed(registration.Heard(int(self._forced_s * 1000), is_forced=True))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._look_again_s()):
                    await self._is_renewed.wait()

    def _look_again_s(self) -> float:
        """In how long: what is owed is said as soon as it may be."""
        due_s = registration.due_s(self._view)
        return POLL_EVERY_S if due_s is None else max(0.0, min(POLL_EVERY_S, due_s - self._loop.time()))

    async def _feed(self, event: registration.Event) -> None:
        before = self._view.state
        self._view, intent = registration.on(self._view, event, self._loop.time())
        if registration.fell_silent(before, self._view.state, event):
            log.warning("manager_does_not_answer", node_id=self._node_id)
        if intent is not None and not self._is_leaving:
            await self._register(is_forced=intent.is_forced)

    async def _register(self, *, is_forced: bool) -> None:
        try:
            ack = await self._posts.register(self._said(is_forced=is_forced))
        except NodeIdTaken:
            log.error("node_id_taken", node_id=self._node_id)
            raise
        except CanoaError as exc:
            log.warning("registration_not_taken", node_id=self._node_id, reason=str(exc))
            return
        self._token = ack.token
        self._forced_s = self._loop.time()
        if not self.is_registered:
            log.info("node_registered", node_id=ack.node_id, actions=len(ack.actions), way="HTTP")
        self._view, _ = registration.on(self._view, registration.Acknowledged(), self._loop.time())


def _nobody(_: object) -> None:
    """Until it starts."""


_port: type[Uplink] = HttpUplink
