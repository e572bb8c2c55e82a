"""An action: a plain function that can also be run elsewhere.

Calling it stays a plain call. `submit`, `call` and `map` send it through the app's broker (`client/`); a worker finds
in it all it needs to run one (`worker/`).
"""

from __future__ import annotations

import enum
import inspect
import math
import time
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, ParamSpec, TypeAlias, TypeVar, overload

import msgspec

from canoa.context import Context
from canoa.errors import ActionDefinitionError, SettingError
from canoa.execution import limits
from canoa.execution.placement import check_site
from canoa.signature import Signature
from canoa.wire.codec import ContentType
from canoa.wire.ids import new_task_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from canoa.app import Canoa
    from canoa.client.handle import Handle
    from canoa.execution.policy import Policy
    from canoa.vocabulary import ActionName

P = ParamSpec("P")
C = TypeVar("C")  # what a plain call gives: the result, or a coroutine of it
R = TypeVar("R")  # the result


class Runs(enum.StrEnum):
    """Where an action's function runs inside its worker."""

    ON_LOOP = "async"
    IN_THREAD = "thread"
    IN_PROCESS = "process"


ON_LOOP: Final = Runs.ON_LOOP
IN_PROCESS: Final = Runs.IN_PROCESS
"""For what is asked of every task; see `outcome.OK`."""


MAX_S: Final = 10 * 365 * 86_400
"""Ten years: more is a mistake in the unit, and milliseconds of it still fit into every header."""


ResultMode: TypeAlias = Literal["reply", "keep", "none"]
Dispatch: TypeAlias = Literal["pool", "routed"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How one submit differs from the action's own settings. None: as the action says."""

    result: ResultMode = "reply"
    dispatch: Dispatch = "pool"
    priority: int | None = None
    timeout: float | None = None
    retry: int | None = None
    queue_timeout: float | None = None
    idempotency_key: str | None = None
    after: float | None = None
    at: datetime | None = None
    site: str | None = None  # of whoever submits a routed task; None: as its program says
    is_awaited: bool = False  # the caller keeps the arguments and waits: the task need not be on disk

    def __post_init__(self) -> None:
        """A worker would refuse these, and nobody would hear of it: so they are refused before they are sent."""
        if self.result not in ("reply", "keep", "none"):
            raise SettingError(
                f"result={self.result!r:.40}: use 'reply', 'keep' for one that outlives its caller, or 'none'"
            )
        _check_seconds("timeout", self.timeout)
        _check_seconds("queue_timeout", self.queue_timeout)
        if self.retry is not None and (type(self.retry) is not int or not 0 <= self.retry < 2**31):
            raise SettingError(f"retry={self.retry!r:.40}: use 0 (no retries) or more")
        key: object = self.idempotency_key
        if key is not None and not (isinstance(key, str) and 1 <= len(key) <= 255):
            raise SettingError(f"idempotency_key={key!r:.40}: use a text of 1 to 255 characters")
        _check_delay(self.after, self.at)
        self._check_dispatch()

    def _check_dispatch(self) -> None:
        if self.dispatch not in ("pool", "routed"):
            raise SettingError(
                f"dispatch={self.dispatch!r:.40}: use 'pool', or 'routed' where a manager chooses the node"
            )
        if self.site is not None:
            check_site(self.site)
            if self.dispatch == "pool":
                raise SettingError(f"site={self.site!r:.40}: in the pool nobody chooses by it; add dispatch='routed'")
        if self.dispatch == "routed" and (self.is_delayed or self.priority is not None):
            name = "priority" if self.priority is not None else "after" if self.after is not None else "at"
            raise SettingError(
                f"{name}={getattr(self, name)!s:.40}: a routed task has none; leave it out, or use the pool"
            )

    @property
    def is_routed(self) -> bool:
        return self.dispatch == "routed"

    @property
    def is_kept(self) -> bool:
        """A store has it, under its id."""
        return self.result == "keep" or self.is_routed

    @property
    def is_delayed(self) -> bool:
        return self.after is not None or self.at is not None


def _check_seconds(name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or not 0 < value <= MAX_S:
        raise SettingError(f"{name}={value!r:.40}: use seconds above 0, at most {MAX_S:,} (ten years)")


def _check_delay(after: object, at: object) -> None:
    if after is not None and at is not None:
        raise SettingError(f"after={after!r:.40} and at={at!s:.40}: use one of them")
    if after is not None and after != 0:
        _check_seconds("after", after)
    if at is None:
        return
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise SettingError(f"at={at!s:.40}: use a datetime with a time zone, such as datetime.now(UTC) + timedelta(…)")
    if at.timestamp() - time.time() > MAX_S:
        raise SettingError(f"at={at!s:.40}: use a time within the next ten years")


class Args(msgspec.Struct, frozen=True):
    """Arguments for one call, made by `action.args(...)`."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Action(Generic[P, C, R]):
    """Made by `@app.action()`."""

    def __init__(
        self,
        app: Canoa,
        function: Callable[..., Any],
        *,
        name: ActionName,
        policy: Policy,
        is_cpu: bool = False,
        priorities: int | None = None,
        quorum: bool = False,
        content_type: ContentType = ContentType.JSON,
    ) -> None:
        self.name = name
        self.function = function
        self.policy = policy
        self.priorities = priorities
        self.quorum = quorum
        self.content_type = content_type
        self.signature = Signature(function, name)
        self.runs = _where(function, name, is_cpu)
        _check_key(policy, self.signature)
        self._app = app
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__qualname__ = function.__qualname__
        self.__wrapped__ = function

    def __repr__(self) -> str:
        return f"<Action {self.name}{self.signature.describe()}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        """The plain function, here and now; a context is made up where it asks for one."""
        if self.signature.takes_context:
            context = Context(task_id=new_task_id(), action=self.name)
            return self.function(context, *args, **kwargs)  # type: ignore[no-any-return]
        return self.function(*args, **kwargs)  # type: ignore[no-any-return]

    def args(self, *args: P.args, **kwargs: P.kwargs) -> Args:
        """Arguments to hand to `map` or `submit_many`, checked by your type checker."""
        return Args(args, kwargs)

    def using(
        self,
        *,
        result: ResultMode = "reply",
        dispatch: Dispatch = "pool",
        priority: int | None = None,
        timeout: float | None = None,
        retry: int | None = None,
        queue_timeout: float | None = None,
        idempotency_key: str | None = None,
        after: float | None = None,
        at: datetime | None = None,
        site: str | None = None,
    ) -> Submitting[P, R]:
        """The same action, submitted in another way: `resize.using(queue_timeout=10).submit("a.png")`.

        `result="keep"`: a store accepts it and keeps its result, which `app.handle(id)` finds again; what was submitted
        with the same `idempotency_key` is the same task. `result="none"`: nobody waits for it. `dispatch="routed"`: a
        manager chooses the node, and keeps the task and each of its attempts, whatever `result` says. `after`: it
        starts that many seconds after the submit, `at`: not before that time (with a zone); both by the worker's clock.
        `queue_timeout`: no attempt starts later than that many seconds from then, or from the submit. `site`: where the
        caller stands, for routed actions that are to run near to it; otherwise as the settings say (CANOA_SITE).
        """
        options = Options(
            result=result,
            dispatch=dispatch,
            priority=priority,
            timeout=timeout,
            retry=retry,
            queue_timeout=queue_timeout,
            idempotency_key=idempotency_key,
            after=after,
            at=at,
            site=site,
        )
        return Submitting(self._app, self, options)

    @cached_property
    def _plainly(self) -> Submitting[P, R]:
        """Made once: options are checked whenever they are made."""
        return self.using()

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Send it to any worker that offers it. Returns once the broker has it; raises `ArgumentsRefused` before
        anything is sent, `UnknownAction` when nobody ever offered it, `BrokerUnreachable`."""
        return await self._plainly.submit(*args, **kwargs)

    async def call(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it and wait for the result. Twice as quick as `submit` and `result`, since nothing is put on disk: the
        caller waits and keeps the arguments, and sends them again should the broker lose them."""
        return await self._plainly.call(*args, **kwargs)

    async def submit_many(self, calls: Iterable[Any]) -> list[Handle[R]]:
        """Submit each: a single first argument, or what `args(...)` made. One confirmed batch, much faster than one
        by one. Raises the first refusal; what was accepted before it runs all the same."""
        return await self._plainly.submit_many(calls)

    @overload
    def map(
        self, calls: Iterable[Any], *, in_flight: int = ..., return_errors: Literal[False] = ...
    ) -> AsyncIterator[R]: ...
    @overload
    def map(
        self, calls: Iterable[Any], *, in_flight: int = ..., return_errors: Literal[True]
    ) -> AsyncIterator[R | Exception]: ...
    def map(
        self, calls: Iterable[Any], *, in_flight: int = 1000, return_errors: bool = False
    ) -> AsyncIterator[R | Exception]:
        """Submit each and stream the results as they come, at most `in_flight` at a time. `calls` may be endless: it is
        taken from only as results come back. The first failure is raised; with `return_errors` failures and refusals
        are yielded in the place of their results."""
        return self._plainly.map(calls, in_flight=in_flight, return_errors=return_errors)  # type: ignore[call-overload, no-any-return]


class Submitting(Generic[P, R]):
    """An action with options for how it is submitted."""

    def __init__(self, app: Canoa, action: Action[P, Any, R], options: Options) -> None:
        self._app = app
        self._action = action
        self._options = options

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        session = await self._app.session()
        return await session.submit(self._action, self._options, args, kwargs)

    async def call(self, *args: P.args, **kwargs: P.kwargs) -> R:
        session = await self._app.session()
        options = self._awaited
        handle: Handle[R]
        if options.is_awaited:
            handle = session.start(self._action, options, args, kwargs)
        else:
            handle = await session.submit(self._action, options, args, kwargs)
        try:
            return await handle.result()
        finally:
            if not handle.is_done:
                session.replies.drop_unseen([handle])

    async def submit_many(self, calls: Iterable[Any]) -> list[Handle[R]]:
        return await self._submit_many(self._options, calls, return_errors=False)

    async def _submit_many(self, options: Options, calls: Iterable[Any], *, return_errors: bool) -> list[Handle[R]]:
        session = await self._app.session()
        arguments = [as_args(each) for each in calls]
        return await session.submit_many(self._action, options, arguments, return_errors=return_errors)

    @cached_property
    def _awaited(self) -> Options:
        """What has no result to prove that it was accepted, or waits for long, goes to disk all the same."""
        is_awaited = self._options.result == "reply" and not self._options.is_delayed
        return msgspec.structs.replace(self._options, is_awaited=is_awaited)

    @overload
    def map(
        self, calls: Iterable[Any], *, in_flight: int = ..., return_errors: Literal[False] = ...
    ) -> AsyncIterator[R]: ...
    @overload
    def map(
        self, calls: Iterable[Any], *, in_flight: int = ..., return_errors: Literal[True]
    ) -> AsyncIterator[R | Exception]: ...
    def map(
        self, calls: Iterable[Any], *, in_flight: int = 1000, return_errors: bool = False
    ) -> AsyncIterator[R | Exception]:
        from canoa.client.mapping import stream

        if type(in_flight) is not int or in_flight < 1:
            raise SettingError(f"in_flight={in_flight!r:.40}: use 1 (one after the other) or more")
        submit_many = partial(self._submit_many, self._awaited, return_errors=return_errors)
        return stream(submit_many, calls, in_flight=in_flight, return_errors=return_errors)


def as_args(call: Any) -> Args:
    """What `map` takes: arguments made by `args(...)`, or a single first argument."""
    return call if isinstance(call, Args) else Args((call,), {})


def _check_key(policy: Policy, signature: Signature) -> None:
    if policy.concurrency is None:
        return
    names = signature.names()
    for field in limits.fields_of(policy.concurrency.text):
        if field not in names:
            raise ActionDefinitionError(
                f"action {signature.action!r}: concurrency={policy.concurrency.text!r:.60} names {field!r}, "
                f"which is not one of its parameters ({', '.join(names) or 'it has none'})"
            )


def _where(function: Callable[..., Any], name: str, is_cpu: bool) -> Runs:
    if inspect.iscoroutinefunction(function):
        if is_cpu:
            raise ActionDefinitionError(f"action {name!r}: cpu=True runs in a process of its own; make it a plain def")
        return Runs.ON_LOOP
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise ActionDefinitionError(f"action {name!r}: a generator cannot be an action; return a list, or submit parts")
    if is_cpu and "<locals>" in function.__qualname__:
        raise ActionDefinitionError(
            f"action {name!r}: cpu=True runs in a process of its own, which finds it by name; define it at module level"
        )
    return Runs.IN_PROCESS if is_cpu else Runs.IN_THREAD
