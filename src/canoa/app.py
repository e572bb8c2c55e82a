"""`Canoa`: a named set of actions, and the way to the broker they share."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

import msgspec

from canoa import settings as settings_module
from canoa.action import Action
from canoa.errors import ActionDefinitionError, PlanRefused, UnknownAction, WrongUse
from canoa.execution.policy import Backoff, Concurrency, Policy, Rate
from canoa.extras import needs_extra
from canoa.newborn import refuse_in_a_child_that_is_being_born
from canoa.urn import action_name, checked_part
from canoa.vocabulary import ActionName, Layer, Routing, TaskId
from canoa.wire.codec import ContentType

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from types import TracebackType

    from canoa.action import Options
    from canoa.broker.memory import MemoryHub
    from canoa.broker.port import Broker, Depth
    from canoa.client.handle import Handle
    from canoa.client.kept import KeptHandle
    from canoa.client.session import Session
    from canoa.client.sync import SyncApp
    from canoa.context import Context
    from canoa.execution.placement import Placement
    from canoa.manager.in_process import LocalManager
    from canoa.plan import Plan
    from canoa.recorder.accepting import Acceptor
    from canoa.recorder.managing import Managing
    from canoa.worker.limiter import LocalLimiter
    from canoa.worker.settings import WorkerSettings
    from canoa.worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")


class _Decorator(Protocol):
    """Turns a function into an action, keeping its parameters for the type checker (without the context)."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> Action[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Action[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Action[P, R, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Action[P, R, R]: ...


class Canoa:
    """`broker`: None takes the settings' (CANOA_BROKER, `.env`, `canoa.toml`, …), and without one the memory broker,
    which lives and dies with this process.

    Usable at once; `async with app:` closes its connections at the end. One session per event loop.
    """

    def __init__(
        self,
        name: str,
        *,
        broker: str | None = None,
        max_payload_bytes: int | None = None,
        content_type: ContentType = ContentType.JSON,
    ) -> None:
        self.name = checked_part("app", name)
        self._arguments = {"broker": broker, "max_payload_bytes": max_payload_bytes}
        self.settings = settings_module.read(self._arguments)
        self.actions: dict[ActionName, Action[..., Any, Any]] = {}
        self.plans: dict[str, Plan] = {}
        self._content_type = content_type
        self._sessions: dict[asyncio.AbstractEventLoop, Session] = {}
        self._hub: tuple[asyncio.AbstractEventLoop, MemoryHub] | None = None
        self.acceptor: Acceptor | None = None
        """Set where a store accepts for the memory broker: what is submitted here is stored first."""
        self.managing: Managing | None = None
        """Likewise, for what is routed."""
        self.workers: dict[Worker, asyncio.AbstractEventLoop] = {}  # that run in this process
        self.host: LocalManager | None = None  # the manager that does
        self.is_managed_here = False  # from the moment on in which that is started

    def __repr__(self) -> str:
        broker = settings_module.without_password(self.settings.broker)
        return f"<Canoa {self.name}, {len(self.actions)} actions, {broker}>"

    # --- Actions --------------------------------------------------------------------------------

    @overload
    def action(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> Action[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def action(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Action[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def action(self, function: Callable[Concatenate[Context, P], R], /) -> Action[P, R, R]: ...
    @overload
    def action(self, function: Callable[P, R], /) -> Action[P, R, R]: ...
    @overload
    def action(
        self,
        /,
        *,
        name: str | None = ...,
        timeout: float | None = ...,
        retry: int = ...,
        backoff: Backoff | None = ...,
        max_crashes: int = ...,
        rate: str | Rate | None = ...,
        concurrency: str | Concurrency | None = ...,
        cpu: bool = ...,
        priorities: int | None = ...,
        quorum: bool = ...,
        routing: Routing | str | None = ...,
        placement: Placement | None = ...,
    ) -> _Decorator: ...
    def action(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        timeout: float | None = 30.0,
        retry: int = 0,
        backoff: Backoff | None = None,
        max_crashes: int = 3,
        rate: str | Rate | None = None,
        concurrency: str | Concurrency | None = None,
        cpu: bool = False,
        priorities: int | None = None,
        quorum: bool = False,
        routing: Routing | str | None = None,
        placement: Placement | None = None,
    ) -> Any:
        """Make a function an action: `@app.action`, or `@app.action(timeout=5, retry=3)`.

        `timeout`: seconds one attempt may run (None: no limit). `retry`: attempts after the first, with exponential
        backoff. `max_crashes`: how often it may end a worker's process before it is put aside. `rate`: how often it may
        start, such as "100/m". `concurrency`: a key with parameters, such as "customer:{id}"; tasks with the same key
        run one at a time. Both count all workers; `Rate` and `Concurrency` say more. `cpu`: run in a process of its
        own. `priorities`: how many levels above 0 its queue keeps apart (1 to 10; they halve its speed). `quorum`: keep
        its queue on a quorum of a cluster's nodes. Those two are fixed once the queue exists. `routing`: how a manager
        chooses among nodes: "round_robin", "least_loaded", "power_of_two" or "learned"; None: as the manager is set.
        `placement`: among which: their layers in order, labels, when to spill over.
        """
        if priorities is not None and (quorum or not 1 <= priorities <= 10):
            raise ActionDefinitionError(f"priorities={priorities}: use 1 to 10, and not together with quorum=True")
        policy = Policy(
            timeout_s=timeout,
            retries=retry,
            backoff=backoff or Backoff(),
            max_crashes=max_crashes,
            rate=Rate(rate) if isinstance(rate, str) else rate,
            concurrency=Concurrency(concurrency) if isinstance(concurrency, str) else concurrency,
            routing=None if routing is None else _routing(routing),
            placement=placement,
        )

        def define(function: Callable[..., Any]) -> Action[..., Any, Any]:
            if not hasattr(function, "__qualname__"):
                raise ActionDefinitionError(f"{function!r:.60} is no function; a name is given as @app.action(name=…)")
            full_name = ActionName(f"{self.name}.{checked_part('action', name or function.__name__)}")
            if full_name in self.actions:
                raise ActionDefinitionError(f"action {full_name!r} is defined twice; give one of them another name=")
            action: Action[..., Any, Any] = Action(
                self,
                function,
                name=full_name,
                policy=policy,
                is_cpu=cpu,
                priorities=priorities,
                quorum=quorum,
                content_type=self._content_type,
            )
            self.actions[full_name] = action
            return action

        return define if function is None else define(function)

    def find(self, name: str) -> Action[..., Any, Any]:
        """By short name, full name or URN."""
        full_name = action_name(name if "." in name else f"{self.name}.{name}")
        if full_name not in self.actions:
            raise UnknownAction(full_name)
        return self.actions[full_name]

    def plan(self, name: str) -> Plan:
        """A new plan, to which steps are added: see `canoa.plan`. The name is what follows `urn:sapparchi:Task:`."""
        from canoa.plan import Plan

        plan = Plan(self, name)
        if plan.name in self.plans:
            raise PlanRefused(f"plan {plan.name!r} is defined twice; give one of them another name")
        self.plans[plan.name] = plan
        return plan

    # --- Connections ----------------------------------------------------------------------------

    def use_broker(self, url: str) -> None:
        """Name another broker, before anything is connected. The CLI's `--broker`."""
        self._check_unconnected()
        self.settings = settings_module.read({**self._arguments, "broker": url})

    def _check_unconnected(self) -> None:
        if any(session.is_open for session in list(self._sessions.values())):
            raise WrongUse("the app is already connected; name the broker before the first submit")

    def use_store(self, url: str) -> None:
        """Name the store, before a worker starts. The CLI's `--store`."""
        self.settings = msgspec.structs.replace(self.settings, store=url)

    def new_broker(self, purpose: str) -> Broker:
        """A broker object of the kind the settings name, not yet open."""
        refuse_in_a_child_that_is_being_born()
        settings_module.check_scheme(self.settings.broker)
        if self.settings.is_memory:
            from canoa.broker.memory import MemoryBroker

            return MemoryBroker(self._memory_hub())
        from canoa.broker.rabbitmq import RabbitBroker, rabbit_settings

        name = f"canoa {self.name} {purpose}"
        return RabbitBroker(self.settings.broker, settings=rabbit_settings(self.settings), name=name)

    def _memory_hub(self) -> MemoryHub:
        from canoa.broker.memory import MemoryHub

        loop = asyncio.get_running_loop()
        if self._hub is None or self._hub[0].is_closed():
            self._hub = (loop, MemoryHub())
        if self._hub[0] is not loop:
            raise WrongUse(
                "the memory broker belongs to another event loop of this process; "
                "use `app.sync` from other threads, or name a real broker (CANOA_BROKER=amqp://…)"
            )
        return self._hub[1]

    def twin(self, name: str) -> Canoa:
        """Another app on the very same broker, also where that lives in this process."""
        twin = Canoa(name)
        twin.share(self)
        return twin

    def share(self, other: Canoa) -> None:
        """Use the very same broker as another app, also where that lives in this process; before anything is
        connected."""
        self._check_unconnected()
        self.settings = other.settings
        if other.settings.is_memory:
            other._memory_hub()
            self._hub = other._hub

    @cached_property
    def limiter(self) -> LocalLimiter:
        """What the limits of this process's workers are counted in: on the memory broker those are all there are."""
        from canoa.worker.limiter import LocalLimiter

        return LocalLimiter()

    async def session(self) -> Session:
        """The open session of the running event loop."""
        from canoa.client.session import Session

        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None:
            for old in list(self._sessions):  # a list at once: other threads have loops of their own
                if old.is_closed():
                    self._sessions.pop(old, None)
            session = self._sessions[loop] = Session(self)
        await session.open()
        return session

    async def submit_raw(
        self,
        name: str,
        body: bytes,
        *,
        content_type: ContentType = ContentType.JSON,
        options: Options | None = None,
    ) -> Handle[Any]:
        """Submit an action this program does not define, its arguments already encoded: the worker checks them."""
        session = await self.session()
        return await session.submit_raw(action_name(name), body, content_type.value, options)

    @overload
    def handle(self, task_id: str) -> KeptHandle[Any]: ...
    @overload
    def handle(self, task_id: str, action: Action[..., Any, R]) -> KeptHandle[R]: ...
    def handle(self, task_id: str, action: Action[..., Any, Any] | None = None) -> KeptHandle[Any]:
        """A task that was routed, or submitted with `result="keep"`, by whomever and whenever. With its action, the
        result has the type that it returns."""
        from canoa.client.kept import KeptHandle

        return KeptHandle(self, TaskId(task_id), action)

    async def depth(self, name: str) -> Depth:
        """How many tasks wait for an action, and how many workers take them. Raises `QueueMissing`."""
        session = await self.session()
        return await session.depth(action_name(name))

    def home_loop(self) -> asyncio.AbstractEventLoop | None:
        """A running loop the app already lives on, if any: `app.sync` works there instead of on a loop of its own."""
        homes = [loop for loop, session in list(self._sessions.items()) if session.is_open]
        return next((loop for loop in [*self.workers.values(), *homes] if loop.is_running()), None)

    async def __aenter__(self) -> Canoa:
        await self.session()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the running loop's session; handles that still wait end with `DeliveryUnknown`. A later submit connects
        anew."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.aclose()

    # --- Working, and life without asyncio --------------------------------------------------------

    @asynccontextmanager
    async def worker(
        self,
        *,
        concurrency: int = 50,
        drain_s: float = 30.0,
        node_id: str | None = None,
        layer: Layer | None = None,
        site: str | None = None,
        labels: dict[str, str] | None = None,
    ) -> AsyncIterator[Worker]:
        """Run the app's actions in this process: `async with app.worker():`. Ready inside, drained at the end. The last
        four say which node it is to managers; where they do not, the settings do."""
        from canoa.worker.settings import worker_settings

        said = {"node_id": node_id, "layer": layer, "site": site, "labels": labels}
        settings = worker_settings(self.settings, concurrency=concurrency, drain_s=drain_s, **said)
        async with self.worker_with(settings) as worker:
            yield worker

    @asynccontextmanager
    async def worker_with(self, settings: WorkerSettings) -> AsyncIterator[Worker]:
        """The same with every setting there is."""
        from canoa.worker.worker import Worker

        worker = Worker(self, settings)
        await worker.start()
        self.workers[worker] = asyncio.get_running_loop()
        try:
            if self.host is not None:
                await self.host.joined(worker)
            yield worker
        finally:
            try:
                await worker.stop()
            finally:
                del self.workers[worker]  # not before: actions that still run may use `app.sync`

    def manager(self, *, store: str | None = None) -> AbstractAsyncContextManager[LocalManager]:
        """Run a manager in this process: `async with app.manager(), app.worker():`. Inside, plans and routed actions
        can be submitted, and the app's plans are registered. Needs `canoa[server]`.

        `store`: where it keeps what it accepts; None takes the settings' (CANOA_STORE), and without one, on the memory
        broker, a file that goes with this process. Raises `StoreTaken`, like `canoa manager`."""
        with needs_extra("app.manager()", "server"):
            from canoa.manager.in_process import managing_here
        return managing_here(self, store)

    @cached_property
    def sync(self) -> SyncApp:
        """The same without asyncio: `app.sync.call(resize, "a.png", width=80)`."""
        from canoa.client.sync import SyncApp

        return SyncApp(self)


def _routing(text: str) -> Routing:
    try:
        return Routing(text)
    except ValueError:
        raise ActionDefinitionError(f"routing={text!r:.40}: use one of {', '.join(Routing)}") from None
