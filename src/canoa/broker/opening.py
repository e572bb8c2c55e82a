"""The first link to a broker: within a time that somebody else gave, and what to do where there is none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from canoa.errors import BrokerUnreachable

if TYPE_CHECKING:
    from canoa.broker.port import Broker


async def open_within(broker: Broker, within_s: float | None) -> None:
    """As `open`; raises `BrokerUnreachable` also where it takes longer. None: as long as the adapter gives it."""
    try:
        async with asyncio.timeout(within_s):
            await broker.open()
    except TimeoutError:
        raise no_link(f" within {round(within_s or 0.0, 1):g} s") from None


def no_link(why: str) -> BrokerUnreachable:
    remedy = "check that it runs, and that the URL's host and port are where it listens for AMQP"
    return BrokerUnreachable(f"no link to the broker{why}; {remedy}")
