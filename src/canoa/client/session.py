"""A program's side of pool and managers: sends tasks, hears their results. One per app and event loop.

Accepted means confirmed by the broker, which has it on disk. What a caller waits for himself (`call`, `map`) is not put
on disk: he keeps it, and sends it again after a restart of the broker. A task whose confirm got lost with the link is
sent again under the same id: workers may run it twice, its handle takes one result.
What `reply` promises: `docs/concepts/guarantees.md`.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from canoa import telemetry
from canoa.action import Options
from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.client import outgoing, routed
from canoa.client.broker_life import BrokerLife
from canoa.client.bundling import Requests, publish_all
from canoa.client.handle import Handle
from canoa.client.replies import Kept, Replies
from canoa.client.sending import Sending, named
from canoa.errors import (
    BrokerUnreachable,
    CanoaError,
    DeliveryUnknown,
    QueueMissing,
    TaskExpired,
    UnknownAction,
    WrongUse,
)
from canoa.logs import get_logger
from canoa.vocabulary import ActionName, TaskId
from canoa.wire.codec import ContentType
from canoa.wire.ids import new_client_id, new_task_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from canoa.action import Action, Args
    from canoa.app import Canoa
    from canoa.broker.port import Broker, Consumer, Depth, PublishOutcome
    from canoa.execution.plan import Plan
    from canoa.wire.codec import Codec

log = get_logger(__name__)

REPLY_PREFETCH = 1000
"""Replies are tiny work: many in hand hide the broker's round trips."""

GRACE_S = 1.0
"""The caller's clock ends a handle this long after the last moment a worker could: its answer may be on the way."""

ROUTED = Options(dispatch="routed")

CLOSE_WITHIN_S = 2.0
CANCEL_WITHIN_S = 2.0

SYSTEM_CANCEL = ActionName("canoa.cancel")
"""What recorders offer to end a kept task (`recorder/system.py`)."""


class Session:
    def __init__(self, app: Canoa) -> None:
        self.loop = asyncio.get_running_loop()
        self.is_open = False
        self.is_memory = app.settings.is_memory
        self.replies = Replies(app.settings.max_payload_bytes)
        self._app = app
        self._compression = app.settings.compression()
        self._broker: Broker | None = None
        self._requests: Requests  # from the first connection on, like the next ones
        self._reply_to = ""
        self._life: BrokerLife | None = None
        self._recovered = asyncio.Event()
        self._watching: asyncio.Task[None]
        self._following: asyncio.Task[None]
        self._opening = asyncio.Lock()
        self._is_closed = False
        self._offered: set[ActionName] = set()
        self._looking = asyncio.Lock()

    # --- Life -------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self.is_open:
            return
        async with self._opening:
            if self._is_closed:
                raise WrongUse("the app was closed while it was connecting; submit again to connect anew")
            if not self.is_open:
                await self._connect()

    async def _connect(self) -> None:
        telemetry.look()
        client_id = new_client_id()
        broker, queue = self._app.new_broker("client"), topology.reply_queue(client_id)
        life = BrokerLife(broker, client_id)
        try:
            await broker.open()
            consumer = await broker.consume(
                queue.name,
                self.replies.on_reply,
                prefetch=REPLY_PREFETCH,
                topology=[queue],
                on_recovered=self._on_recovered,
            )
            await life.begin()
        except BaseException:
            await broker.aclose()
            raise
        self._broker, self.replies.consumer, self._reply_to, self._life = broker, consumer, queue.name, life
        self._requests = Requests(broker)
        name = f"session[{self._app.name}]"
        self._watching = self.loop.create_task(self._watch(broker, consumer), name=f"{name}.watch")
        self._following = self.loop.create_task(self._follow(life), name=f"{name}.follow")
        self.is_open = True

    async def _watch(self, broker: Broker, consumer: Consumer) -> None:
        """A session that can no longer hear is over: its handles say so, and the next submit connects anew."""
        try:
            await consumer.wait_ended()
        except CanoaError as exc:
            self.is_open = False
            self._following.cancel()
            self.replies.fail_all(f"results can no longer be received ({exc})")
            await broker.aclose()

    def _on_recovered(self, away_s: float) -> None:
        if away_s >= topology.REPLY_EXPIRES_S:  # our queue was gone, and with it whatever came meanwhile
            self.replies.fail_submitted(f"no link to the broker for {away_s:.0f} s, too long for results to wait,")
        self._recovered.set()

    async def _follow(self, life: BrokerLife) -> None:
        """After every recovery, and now and then to keep the mark: a broker that was restarted has forgotten what was
        not on disk, and gets it again."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(topology.REPLY_EXPIRES_S / 3):
                    await self._recovered.wait()
            self._recovered.clear()
            try:
                if not await life.goes_on():
                    self._send_forgotten()  # before the new mark, which says that it is done
                    await life.begin()
            except CanoaError as exc:
                log.warning("broker_not_marked", reason=str(exc))  # the next recovery brings us back here

    def _send_forgotten(self) -> None:
        forgotten = self.replies.forgotten()
        log.warning("broker_was_restarted", sent_again=len(forgotten))
        for handle, publication in forgotten:
            self._post(publication, handle, None)

    async def aclose(self) -> None:
        """Take the reply queue along: nobody will come back for it. Handles that still wait hear `DeliveryUnknown`."""
        self._is_closed = True
        async with self._opening:
            was_open, self.is_open = self.is_open, False
            try:
                if was_open:
                    self._watching.cancel()
                    self._following.cancel()
                    await self._leave()
            finally:
                self.replies.fail_all("the app was closed")

    async def _leave(self) -> None:
        broker, consumer, life = self._broker, self.replies.consumer, self._life
        assert broker is not None
        assert consumer is not None
        assert life is not None
        self.replies.settle()
        with suppress(CanoaError, TimeoutError):  # the queue expires by itself
            async with asyncio.timeout(CLOSE_WITHIN_S):
                await consumer.cancel()
                await broker.delete_queue(self._reply_to)
                await life.end()
        await broker.aclose()

    def _connected(self) -> Broker:
        if self._broker is None or not self.is_open:
            raise BrokerUnreachable("the app was closed; submit again to connect anew")
        return self._broker

    # --- Sending ------------------------------------------------------------------------------------

    async def submit(self, action: Action[..., Any, Any], options: Options, args: Any, kwargs: Any) -> Handle[Any]:
        await self._check_offered(action.name, options)
        return await self._accepted(*self._prepare(action, options, args, kwargs))

    async def submit_raw(
        self, name: ActionName, body: bytes, content_type: str, options: Options | None = None
    ) -> Handle[Any]:
        options = options or Options()
        await self._check_offered(name, options)
        return await self._accepted(*self._prepare_raw(name, body, content_type, options, None))

    async def submit_plan(
        self, plan: Plan | str, input: Any, options: Options | None = None, *, codec: Codec[Any] | None = None
    ) -> Handle[Any]:
        """A task for the managers. `plan`: itself, or the name of one that is registered; `input`: what it starts from;
        `codec`: of its result's type, None takes whatever it is. Raises `NobodyManages`, `ArgumentsRefused`."""
        return await self._accepted(*self._prepare_plan(plan, input, options or ROUTED, codec))

    def start_plan(
        self, plan: Plan | str, input: Any, options: Options, *, codec: Codec[Any] | None = None
    ) -> Handle[Any]:
        """Like `start`: for a caller who waits, as the options say."""
        handle, publication = self._prepare_plan(plan, input, options, codec)
        self._post(publication, handle, None)
        return handle

    def _prepare_plan(
        self, plan: Plan | str, input: Any, options: Options, codec: Codec[Any] | None
    ) -> tuple[Handle[Any], Publication]:
        publication = routed.of_plan(plan, input, options, self._caller())
        return self._expected(ActionName(publication.message.type or ""), publication, options, codec)

    def _caller(self) -> routed.Caller:
        return routed.Caller(self._reply_to, self._app.settings.max_payload_bytes, self._app.settings.site)

    async def _accepted(self, handle: Handle[Any], publication: Publication) -> Handle[Any]:
        if (accept := self._storing(publication)) is not None:
            await self._stored(accept, [(handle, publication)])
            return handle
        accepted: asyncio.Future[CanoaError | None] = self.loop.create_future()
        self._post(publication, handle, accepted)
        try:
            error = await accepted
        except asyncio.CancelledError:
            self.replies.drop_unseen([handle])
            raise
        if error is not None:
            raise error
        return handle

    def _storing(self, publication: Publication) -> Callable[[list[Message]], Awaitable[Any]] | None:
        """Who says yes where the broker dies with this process: its store, unless a caller keeps the task himself."""
        app = self._app
        if not publication.message.persistent:
            return None
        if publication.key == topology.TASK_REQUESTS:
            return None if app.managing is None else app.managing.accept
        return None if app.acceptor is None else app.acceptor.take_each

    async def _stored(
        self, accept: Callable[[list[Message]], Awaitable[Any]], prepared: Sequence[tuple[Handle[Any], Publication]]
    ) -> None:
        try:
            await accept([publication.message for _, publication in prepared])
        except BaseException:
            self.replies.drop_unseen([handle for handle, _ in prepared])
            raise
        for handle, _ in prepared:
            handle.is_kept = True
            telemetry.sent(handle, None)

    async def _check_offered(self, name: ActionName, options: Options) -> None:
        """A store and a rung take a task for anybody, so what nobody ever offered is told apart before it is sent."""
        if name in self._offered or options.is_routed or not (options.is_kept or options.is_delayed):
            return
        async with self._looking:  # of many submits at once, the first one looks
            if name in self._offered:
                return
            try:
                await self._connected().depth(topology.action_queue_name(name))
            except QueueMissing as exc:
                raise UnknownAction(name, is_memory=self.is_memory) from exc
            self._offered.add(name)

    def start(self, action: Action[..., Any, Any], options: Options, args: Any, kwargs: Any) -> Handle[Any]:
        """Without waiting for the confirm: the result itself will prove it. A refusal ends the handle."""
        handle, publication = self._prepare(action, options, args, kwargs)
        self._post(publication, handle, None)
        return handle

    def _post(
        self, publication: Publication, handle: Handle[Any], accepted: asyncio.Future[CanoaError | None] | None
    ) -> None:
        broker = self._connected()
        way = self._requests if publication.key == topology.TASK_REQUESTS else broker
        Sending(self, way, publication, handle, accepted).post()

    async def submit_many(
        self, action: Action[..., Any, Any], options: Options, calls: Sequence[Args], *, return_errors: bool = False
    ) -> list[Handle[Any]]:
        """Raises the first refusal; with `return_errors`, what is refused ends its own handle alone."""
        await self._check_offered(action.name, options)
        prepared: list[tuple[Handle[Any], Publication | None]] = []
        try:
            for call in calls:
                prepared.append(self._prepare_or_fail(action, options, call, is_failing=return_errors))
            sound = [(handle, each) for handle, each in prepared if each is not None]
            if sound and (accept := self._storing(sound[0][1])) is not None:
                await self._stored(accept, sound)
                return [handle for handle, _ in prepared]
            outcomes = iter(await self._publish_all([each for _, each in sound]))
            for handle, publication in prepared:
                outcome = None if publication is None else next(outcomes)
                telemetry.sent(handle, outcome)
                if publication is None or outcome is None:
                    continue
                if not (options.result != "none" and handle.is_answered):
                    error = named(outcome, publication, action.name, is_memory=self.is_memory)
                    self.replies.drop(handle, error)
                    if not return_errors:
                        raise error
        except BaseException:
            self.replies.drop_unseen([handle for handle, _ in prepared])
            raise
        return [handle for handle, _ in prepared]

    async def _publish_all(self, publications: list[Publication]) -> list[PublishOutcome]:
        """In one batch, and again what a broken link left in doubt."""
        give_up_s = self.give_up_s()
        outcomes = await publish_all(self._connected(), publications)
        while self.is_open and self.loop.time() < give_up_s:
            unknown = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, DeliveryUnknown)]
            if not unknown:
                break
            now_s = time.time()
            again = await publish_all(
                self._connected(), [outgoing.aimed_anew(publications[index], now_s) for index in unknown]
            )
            for index, outcome in zip(unknown, again, strict=True):
                if not isinstance(outcome, BrokerUnreachable):  # never sent this time: still in doubt
                    outcomes[index] = outcome
        return outcomes

    def give_up_s(self) -> float:
        """Until when, by the loop's clock, something posted now is sent again."""
        return self.loop.time() + self._app.settings.submit_timeout_s

    def _prepare_or_fail(
        self, action: Action[..., Any, Any], options: Options, call: Args, *, is_failing: bool
    ) -> tuple[Handle[Any], Publication | None]:
        try:
            handle, publication = self._prepare(action, options, call.args, call.kwargs)
        except CanoaError as exc:
            if not is_failing:
                raise
            refused: Handle[Any] = Handle(self, new_task_id(), action.name)
            refused.fail(exc)
            return refused, None
        self.replies.taken(handle)  # a batch is confirmed as a whole: until then any of it may be there
        return handle, publication

    def _prepare(
        self, action: Action[..., Any, Any], options: Options, args: Any, kwargs: Any
    ) -> tuple[Handle[Any], Publication]:
        content_type = ContentType.JSON if options.is_routed else action.content_type  # nodes speak nothing else
        body = action.signature.encode(args, kwargs, content_type)
        return self._prepare_raw(action.name, body, content_type.value, options, action)

    def _prepare_raw(
        self, name: ActionName, body: bytes, content_type: str, options: Options, action: Action[..., Any, Any] | None
    ) -> tuple[Handle[Any], Publication]:
        codec = None if action is None else action.signature.result
        if options.is_routed:
            return self._expected(name, routed.of_action(name, body, options, self._caller()), options, codec)
        handle, publication = self._expected(
            name, self._publication(name, body, content_type, options, action), options, codec
        )
        if options.result != "none":
            self._watch_clock(handle, options, action)
        return handle, publication

    def _publication(
        self, name: ActionName, body: bytes, content_type: str, options: Options, action: Action[..., Any, Any] | None
    ) -> Publication:
        settings = self._app.settings
        return outgoing.publication(
            name,
            body,
            content_type,
            options,
            action=action,
            reply_to=self._reply_to,
            limit_bytes=settings.max_payload_bytes,
            layer=settings.layer,
            compression=self._compression,
        )

    def _expected(
        self, name: ActionName, publication: Publication, options: Options, codec: Codec[Any] | None
    ) -> tuple[Handle[Any], Publication]:
        """A handle that hears the answer."""
        task_id = TaskId(publication.message.message_id or "")
        handle: Handle[Any] = Handle(self, task_id, name, is_kept=options.is_kept)
        if telemetry.spans is not None:
            publication = telemetry.spans.begin_send(
                publication, handle, is_awaited=options.is_awaited, is_memory=self.is_memory
            )
        if options.result != "none":
            # A manager answers from its store, so its answers are not put on disk: asking again brings a lost one.
            is_repeatable = options.is_awaited or options.is_routed
            self.replies.expect(handle, codec, Kept(publication) if is_repeatable else None)
        else:
            handle.succeed(None)
        return handle, publication

    def _watch_clock(self, handle: Handle[Any], options: Options, action: Action[..., Any, Any] | None) -> None:
        """With both limits known, the handle ends by the caller's clock, whatever became of the task."""
        run_s = outgoing.run_limit_s(options, action)
        if options.queue_timeout is not None and run_s is not None:
            wait_s = outgoing.delay_s(options, time.time()) + options.queue_timeout
            timer = self.loop.call_later(wait_s + run_s + GRACE_S, self._on_overdue, handle)
            handle.on_ended(lambda _: timer.cancel())

    def _on_overdue(self, handle: Handle[Any]) -> None:
        text = f"task {handle.id} ({handle.action}) was neither started nor refused within its time limits"
        self.replies.drop(handle, TaskExpired(text, task_id=handle.id))

    # --- Looking, cancelling ------------------------------------------------------------------------

    async def depth(self, action: ActionName) -> Depth:
        return await self._connected().depth(topology.action_queue_name(action))

    async def cancel_kept(self, task_id: TaskId) -> None:
        """Return once a recorder ended it in the store, or after `CANCEL_WITHIN_S`: the next recorder does it then."""
        body = msgspec.json.encode({"task_id": task_id})
        with suppress(CanoaError):
            handle = await self.submit_raw(SYSTEM_CANCEL, body, ContentType.JSON.value, Options(is_awaited=True))
            try:
                await handle.result(CANCEL_WITHIN_S)
            finally:
                self.replies.drop_unseen([handle])

    async def announce_cancel(self, task_id: TaskId) -> None:
        """To every worker there is. Nobody listening is fine; no link is not our caller's problem either."""
        notice = Message(body=task_id.encode(), persistent=False, message_id=new_task_id(), type="canoa.cancel")
        with suppress(CanoaError):
            to_all = Publication(message=notice, exchange=topology.CANCEL, key="", mandatory=False)
            await self._connected().publish(to_all)
