"""What comes to a manager by other ways than the broker's queues: registrations and results over HTTP.

They are taken like those of the broker, by the same parts; whoever brought them waits until they are written.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.broker.direct import DirectDelivery
from canoa.errors import CanoaError, NodeIdTaken, PayloadTooLarge, StoreUnreachable, Undecodable, WrongUse
from canoa.manager.claims import Reason, Refused, read_claim
from canoa.manager.sides import is_bare_side
from canoa.urn import action_urn
from canoa.wire import sapparchi
from canoa.wire.sapparchi import RegistrationAck

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from canoa.broker.port import Message, OnDelivery, Settlement
    from canoa.manager.catalogue import Catalogue
    from canoa.store.routed_port import NodeRow

WRITTEN_WITHIN_S: Final = 10.0
"""Then it is not: the store is away, and whoever waits shall try again."""


class Doors:
    """`on_registration`, `on_result`: who takes them. `look_up`: finds out where the name in an endpoint leads."""

    def __init__(
        self,
        catalogue: Catalogue,
        *,
        on_registration: OnDelivery,
        on_result: OnDelivery,
        look_up: Callable[[NodeRow], Awaitable[None]],
    ) -> None:
        self._catalogue = catalogue
        self._look_up = look_up
        self._on_registration = on_registration
        self._on_result = on_result
        self._loop = asyncio.get_running_loop()

    async def register(self, message: Message) -> RegistrationAck:
        """Return once it is written. Raises what is wrong with it, `EndpointRefused`, `NodeIdTaken`, or
        `StoreUnreachable`."""
        message = msgspec.structs.replace(message, headers={**message.headers, sapparchi.BY_HTTP: True})
        claim = read_claim(message)
        if isinstance(claim, Refused):
            raise _refusal(claim)
        if claim.row.actions:
            await self._look_up(claim.row)
        await self._taken(self._on_registration, message)
        return self._answer(claim.row)

    async def take_result(self, message: Message) -> None:
        """Return once it is written, or found to change nothing. Raises what is wrong with it."""
        await self._taken(self._on_result, message)

    def _answer(self, claim: NodeRow) -> RegistrationAck:
        row = self._catalogue.rows.get(claim.node_id)
        if not claim.actions:  # it left
            return RegistrationAck(token="", node_id=claim.node_id, actions=[])
        if row is None or not row.actions:
            raise StoreUnreachable(f"node {claim.node_id!r:.80} is not taken now; the manager's log says why")
        if is_bare_side(claim, row):  # its own, maybe, at a broker that cannot say so
            raise StoreUnreachable(f"a device that says the same lives under {claim.node_id!r:.80} at an MQTT broker")
        if row.instance != claim.instance:
            raise NodeIdTaken(claim.node_id)
        return RegistrationAck(token=row.token, node_id=row.node_id, actions=[action_urn(name) for name in row.actions])

    async def _taken(self, on_delivery: OnDelivery, message: Message) -> None:
        settled: asyncio.Future[Settlement] = self._loop.create_future()
        delivery = DirectDelivery(message, settled.set_result)
        on_delivery(delivery)
        if not settled.done():  # what is refused is so at once
            try:
                async with asyncio.timeout(WRITTEN_WITHIN_S):
                    await settled
            except TimeoutError:
                raise StoreUnreachable(f"it was not written within {WRITTEN_WITHIN_S:g} s; try again") from None
            finally:
                delivery.abandon()
        if delivery.error is not None:
            raise delivery.error


def _refusal(refused: Refused) -> CanoaError:
    match refused.reason:
        case Reason.OVERSIZED:
            limit_bytes = sapparchi.MAX_REGISTRATION_BYTES
            return PayloadTooLarge("a registration", limit_bytes + 1, limit_bytes, remedy="offer fewer actions")
        case Reason.MALFORMED:
            return Undecodable(refused.why)
        case _:
            return WrongUse(refused.why)
