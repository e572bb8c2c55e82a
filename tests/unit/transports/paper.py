"""Ways to nodes that do what a test tells them to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from canoa.errors import BrokerUnreachable, CanoaError, Unroutable
from canoa.transports.reaching import Reaching
from canoa.vocabulary import AMQP, HTTP, MQTT_LINK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from canoa.broker.port import Message, PublishOutcome
    from canoa.store.routed_port import NodeRow
    from canoa.transports.port import NodeTransport, OnSent, SeenTransport
    from canoa.transports.reaching import Meter
    from canoa.vocabulary import NodeId


class PaperTopic:
    """Takes everything, unless it is told what to say instead."""

    def __init__(self) -> None:
        self.is_up = self.may_be_used = True
        self.says: PublishOutcome = None
        self.sent: list[str] = []

    def may_reach(self, node: NodeRow) -> bool:
        return self.may_be_used

    def post(self, node: NodeRow, messages: Sequence[Message], on_sent: OnSent) -> None:
        outcome = self.says if self.is_up else BrokerUnreachable("no link")
        if outcome is None:
            self.sent += [message.message_id or "" for message in messages]
        asyncio.get_running_loop().call_soon(on_sent, range(len(messages)), outcome)


class PaperQueue(PaperTopic):
    """Where one can look who is there."""

    def __init__(self) -> None:
        super().__init__()
        self.consumers: int | None = 1

    async def listeners(self, node: NodeRow) -> int | None:
        if not self.is_up:
            raise BrokerUnreachable("no link")
        return self.consumers


class Ways:
    """A manager's, to the nodes that it knows."""

    def __init__(self, rows: Mapping[NodeId, NodeRow], *, meter: Meter | None = None) -> None:
        self.amqp, self.mqtt, self.http = PaperQueue(), PaperTopic(), PaperQueue()
        by_way: dict[str, NodeTransport] = {AMQP: self.amqp, MQTT_LINK: self.mqtt, HTTP: self.http}
        self.reaching = Reaching(by_way, row=rows.get, meter=meter)

    async def post(
        self, node_id: NodeId, *messages: Message, is_work: bool = True, is_again: bool = False
    ) -> list[PublishOutcome]:
        """How it went with each of them, in order."""
        told: dict[int, PublishOutcome] = {}
        all_told = asyncio.Event()

        def on_sent(places: range, outcome: PublishOutcome) -> None:
            told.update(dict.fromkeys(places, outcome))
            if len(told) == len(messages):
                all_told.set()

        self.reaching.post(node_id, messages, on_sent, is_work=is_work, is_again=is_again)
        async with asyncio.timeout(5):
            await all_told.wait()
        return [told[place] for place in range(len(messages))]


def nobody() -> CanoaError:
    return Unroutable("nobody is there")


_topic: Callable[[], NodeTransport] = PaperTopic
_queue: Callable[[], SeenTransport] = PaperQueue
