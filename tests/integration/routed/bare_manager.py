"""A manager by hand: it hears registrations, sends messages to nodes and reads what they answer. It decides nothing."""

from __future__ import annotations

import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from tests.contract.broker.inbox import Inbox
from tests.integration.pool.pool import opened

from canoa.broker import topology
from canoa.broker.port import HeaderValue, Message, Publication, Settlement
from canoa.urn import action_urn
from canoa.vocabulary import ActionName
from canoa.wire import bundle, packing, sapparchi
from canoa.wire.sapparchi import Heartbeat, NodeMessage, Registration, RegistrationAck

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from canoa import Canoa
    from canoa.broker.port import Broker

TASK_ID = "0192f000000070008000000000000001"
NODE = "gw-7"
MAX_BYTES = 10_000_000

_numbers = itertools.count(1)


class Answered(NamedTuple):
    request_id: str
    action: str
    value: Any
    headers: Mapping[str, HeaderValue]
    encoding: str | None = None

    @property
    def status(self) -> HeaderValue:
        return self.headers[sapparchi.STATUS]


class Registered(NamedTuple):
    body: Registration
    reply_to: str | None
    headers: Mapping[str, HeaderValue]


class BareManager:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._registrations = Inbox(Settlement.ACK)
        self._answers = Inbox(Settlement.ACK)

    async def start(self) -> None:
        await self.broker.declare(*topology.manager())
        await self.broker.consume(topology.NODES_REGISTER, self._registrations, prefetch=100)
        await self.broker.consume(topology.STEP_RESULTS, self._answers, prefetch=100)

    # --- Nodes ------------------------------------------------------------------------------------

    @property
    def registration_count(self) -> int:
        return len(self._registrations.deliveries)

    async def registration(self) -> Registered:
        message = (await self._registrations.take_one()).message
        return Registered(sapparchi.decode(message.body, Registration), message.reply_to, message.headers)

    async def heartbeat(self, ts: int, *, is_forced: bool = False) -> None:
        body = sapparchi.encode(Heartbeat(ts=ts, force_register=is_forced))
        await self.broker.publish(_notice(topology.MANAGER_AVAILABLE, "", body))

    async def acknowledge(self, node_id: str, actions: list[str], *, reply_to: str | None = None) -> None:
        """As published, or to that node alone."""
        body = sapparchi.encode(RegistrationAck(token="t", node_id=node_id, actions=actions))
        way = (topology.AMQ_TOPIC, topology.NODES_ACK) if reply_to is None else ("", reply_to)
        await self.broker.publish(_notice(*way, body))

    # --- Work -------------------------------------------------------------------------------------

    async def send(
        self,
        action: str,
        data: Any = msgspec.UNSET,
        *,
        node: str = NODE,
        headers: Mapping[str, HeaderValue] | None = None,
        request_id: str | None = None,
    ) -> str:
        """One request, as a manager of ours writes it. Returns its id."""
        message = asking(action, data, node=node, headers=headers, request_id=request_id)
        await self.broker.publish(Publication(message=message, exchange=topology.NODE_UNICAST, key=""))
        return message.message_id or ""

    async def send_together(self, *messages: Message, node: str = NODE, answers: str | None = None) -> list[str]:
        """All of them as one. Returns their ids. `answers`: where those are wanted."""
        [(message, _)] = bundle.packed(messages)
        message = msgspec.structs.replace(message, reply_to=answers)
        await self.broker.publish(Publication(message=message, key=topology.node_queue_name(node)))
        return [each.message_id or "" for each in messages]

    async def send_raw(
        self, body: bytes, *, node: str = NODE, headers: Mapping[str, HeaderValue] | None = None, message_id: str = "m"
    ) -> None:
        message = Message(body=body, message_id=message_id, headers={"nodeId": node, **(headers or {})})
        await self.broker.publish(Publication(message=message, exchange=topology.NODE_UNICAST, key=""))

    async def cancel(self, request_id: str) -> None:
        await self.broker.publish(_notice(topology.CANCEL, "", request_id.encode()))

    async def answer(self) -> Answered:
        (answered,) = await self.answers(1)
        return answered

    async def answers(self, count: int) -> list[Answered]:
        return [read_answer(each.message) for each in await self._answers.take(count)]

    async def answers_together(self, count: int, inbox: Inbox | None = None) -> list[Answered]:
        """That many, in however many messages they come; `inbox`: not where all answers go."""
        found: list[Answered] = []
        while len(found) < count:
            message = (await (inbox or self._answers).take_one()).message
            parts = bundle.parts(message) if bundle.is_bundle(message) else [message]
            found += map(read_answer, parts)
        return found

    @property
    def answer_count(self) -> int:
        """Messages: one that holds many counts once."""
        return len(self._answers.deliveries)


def asking(
    action: str,
    data: Any = msgspec.UNSET,
    *,
    node: str = NODE,
    headers: Mapping[str, HeaderValue] | None = None,
    request_id: str | None = None,
) -> Message:
    """A request, as a manager of ours writes it."""
    request_id = request_id or sapparchi.request_id(TASK_ID, 0, 1, next(_numbers))
    text = "{}" if data is msgspec.UNSET else msgspec.json.encode(data).decode()
    body = NodeMessage(action_to=action_urn(ActionName(action)), request_id=request_id, message_data=text)
    return Message(body=sapparchi.encode(body), message_id=request_id, headers={"nodeId": node, **(headers or {})})


def _notice(exchange: str, key: str, body: bytes) -> Publication:
    return Publication(message=Message(body=body), exchange=exchange, key=key, mandatory=False)


def read_answer(message: Message) -> Answered:
    read = sapparchi.decode(packing.unpack(message, MAX_BYTES), NodeMessage)
    data = msgspec.json.decode(read.message_data)
    return Answered(read.request_id, read.action_to, data, message.headers, message.content_encoding)


@asynccontextmanager
async def managing(app: Canoa) -> AsyncIterator[BareManager]:
    async with opened(app) as broker:
        manager = BareManager(broker)
        await manager.start()
        yield manager
