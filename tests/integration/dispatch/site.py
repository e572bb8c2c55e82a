"""A site with managers and nodes, in the words of the tests. Its nodes know the published wire and nothing else."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import msgspec

from canoa import Canoa
from canoa.broker import topology
from canoa.broker.port import Binding, Message, Publication, Queue
from canoa.manager.hosting import Hosted, hosting
from canoa.urn import ACTION_PREFIX, TASK_PREFIX
from canoa.vocabulary import TaskId
from canoa.wire import sapparchi
from canoa.wire.ids import new_client_id, new_task_id
from canoa.wire.sapparchi import NodeMessage, PlannedStep, Registration, TaskRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from canoa.broker.port import Broker, Consumer, Delivery, HeaderValue
    from canoa.store.routed_port import StepRow

WITHIN_S = 20.0


class Node:
    """Runs functions of one argument. One that raises answers with an error; one that never returns, never."""

    def __init__(self, broker: Broker, node_id: str, actions: dict[str, Callable[[Any], Any]]) -> None:
        self.id = node_id
        self.received: list[str] = []  # request ids
        self.answers_go_to = ("amq.topic", topology.STEP_RESULTS)  # exchange and key
        self._broker = broker
        self._actions = actions
        self._running: set[asyncio.Task[None]] = set()
        self._consumer: Consumer

    async def join(self) -> None:
        declared = topology.node_queue(self.id)
        self._consumer = await self._broker.consume(
            topology.node_queue_name(self.id), self._on_delivery, prefetch=100, topology=declared
        )
        await self.register()

    async def register(self) -> None:
        urns = [ACTION_PREFIX + name for name in self._actions]
        body = sapparchi.encode(Registration(node_id=self.id, endpoint=f"amqp://{self.id}", actions=urns))
        await self._broker.publish(
            Publication(message=Message(body=body), exchange="amq.topic", key=topology.NODES_REGISTER, mandatory=False)
        )

    async def go_away(self) -> None:
        """Its queue stays, and keeps what comes, until it joins again."""
        await self._consumer.cancel()

    async def vanish(self) -> None:
        """Without a word, and its queue with it."""
        for task in self._running:
            task.cancel()
        await self._consumer.cancel()
        await self._broker.delete_queue(topology.node_queue_name(self.id))

    def _on_delivery(self, delivery: Delivery) -> None:
        task = asyncio.create_task(self._run(delivery))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, delivery: Delivery) -> None:
        message = sapparchi.decode(delivery.message.body, NodeMessage)
        self.received.append(message.request_id)
        try:
            given = self._actions[message.action_to.removeprefix(ACTION_PREFIX)](
                msgspec.json.decode(message.message_data)
            )
            said = await given if inspect.isawaitable(given) else given
        except Exception as exc:
            said = {"error": f"{exc}"}
        await self.answer(message.request_id, said, action=message.action_to)
        delivery.settle()

    async def answer(self, request_id: str, said: Any, *, action: str = ACTION_PREFIX + "plant.any") -> None:
        await self.answer_with(msgspec.json.encode(said).decode(), request_id, action=action)

    async def answer_with(self, data: str, request_id: str, *, action: str = ACTION_PREFIX + "plant.any") -> None:
        body = sapparchi.encode(NodeMessage(action_to=action, request_id=request_id, message_data=data))
        exchange, key = self.answers_go_to
        await self._broker.publish(Publication(message=Message(body=body), exchange=exchange, key=key, mandatory=False))


class Site:
    """`start_manager` once or more, then `start_node`."""

    def __init__(self, broker_url: str, store_url: str) -> None:
        self.app = Canoa("plant", broker=broker_url)
        self.store_url = store_url
        self.requests_go_to = ("", topology.TASK_REQUESTS)  # exchange and key
        self.replies: dict[str, asyncio.Future[Message]] = {}
        self.finals: dict[str, asyncio.Future[Message]] = {}
        self._stack = AsyncExitStack()
        self._managers: list[AsyncExitStack] = []
        self.broker: Broker
        self.reply_to = f"test.reply.{new_client_id()}"

    async def __aenter__(self) -> Site:
        self.broker = self.app.new_broker("test")
        await self.broker.open()
        self._stack.push_async_callback(self.broker.aclose)
        await self._listen(self.reply_to, self.replies, [Queue(name=self.reply_to, expires_s=60)])
        name = f"test.final.{new_client_id()}"
        bound = Binding(exchange="amq.topic", queue=name, key=topology.FINAL_RESULTS)
        await self._listen(name, self.finals, [Queue(name=name, expires_s=60), bound])
        return self

    async def _listen(self, queue: str, heard: dict[str, asyncio.Future[Message]], declared: list[Any]) -> None:
        def on_delivery(delivery: Delivery) -> None:
            delivery.settle()
            future = _future(heard, delivery.message.correlation_id or "")
            if not future.done():
                future.set_result(delivery.message)

        await self.broker.consume(queue, on_delivery, prefetch=1000, topology=declared)

    async def __aexit__(self, *_: object) -> None:
        async with asyncio.timeout(2 * WITHIN_S):
            for manager in self._managers:
                await manager.aclose()
            await self._stack.aclose()

    # --- Parts --------------------------------------------------------------------------------------------

    async def start_manager(self) -> Hosted:
        stack = AsyncExitStack()
        self._managers.append(stack)
        return await stack.enter_async_context(hosting(self.app, self.store_url))

    async def stop_manager(self) -> None:
        await self._managers.pop(0).aclose()

    async def start_node(self, node_id: str, manager: Hosted, **actions: Callable[[Any], Any]) -> Node:
        """Return once the manager routes to it."""
        node = Node(self.broker, node_id, {f"plant.{name}": function for name, function in actions.items()})
        await node.join()
        rows = manager.manager.nodes.catalogue.rows
        await eventually(lambda: any(row.node_id == node_id and row.actions for row in rows.values()))
        return node

    # --- Tasks --------------------------------------------------------------------------------------------

    async def request(
        self,
        *actions: str,
        data: Any = None,
        plan: dict[str, tuple[str, list[str]]] | None = None,
        task_id: str = "",
        request_id: str = "",
        headers: dict[str, HeaderValue] | None = None,
    ) -> str:
        """`plan`: step to its action and what it waits for."""
        steps = [
            PlannedStep(step=step, action=f"{ACTION_PREFIX}plant.{action}", after=after)
            for step, (action, after) in (plan or {}).items()
        ]
        request = TaskRequest(
            id=request_id or new_task_id(),
            task_id=TASK_PREFIX + task_id if task_id else "",
            target_actions=[f"{ACTION_PREFIX}plant.{action}" for action in actions],
            message_data=msgspec.json.encode(data).decode(),
            task_plan=steps or None,
        )
        await self.publish(sapparchi.encode(request), message_id=request.id, headers=headers)
        return request.id

    async def publish(self, body: bytes, *, message_id: str, headers: dict[str, HeaderValue] | None = None) -> None:
        message = Message(body=body, message_id=message_id, reply_to=self.reply_to, headers=headers or {})
        exchange, key = self.requests_go_to
        await self.broker.publish(Publication(message=message, exchange=exchange, key=key))

    async def reply(self, task_id: str) -> Message:
        return await asyncio.wait_for(_future(self.replies, task_id), WITHIN_S)

    async def result(self, task_id: str) -> Any:
        reply = await self.reply(task_id)
        assert reply.type == "ok", reply.body
        return msgspec.json.decode(reply.body)

    async def failure(self, task_id: str) -> tuple[str, str]:
        """How it ended, and why."""
        reply = await self.reply(task_id)
        return reply.type or "", msgspec.json.decode(reply.body)["message"]

    async def final(self, task_id: str) -> Any:
        return msgspec.json.decode((await asyncio.wait_for(_future(self.finals, task_id), WITHIN_S)).body)


async def steps_of(manager: Hosted, task_id: str) -> dict[str, StepRow]:
    rows = await manager.manager.store.steps(TaskId(task_id))
    return {row.name: row for row in rows}


def _future(heard: dict[str, asyncio.Future[Message]], key: str) -> asyncio.Future[Message]:
    return heard.setdefault(key, asyncio.get_running_loop().create_future())


async def eventually(is_so: Callable[[], bool | Awaitable[bool]]) -> None:
    """Ask again and again, for a bounded time."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            answer = is_so()
            if await answer if inspect.isawaitable(answer) else answer:
                return
            await asyncio.sleep(0.01)
