"""A worker's words to managers over HTTP: registrations and answers, to the first of them that takes them."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import aiohttp
import msgspec

from canoa.errors import BrokerUnreachable, CanoaError, DeliveryUnknown, NodeIdTaken, WrongUse
from canoa.logs import get_logger
from canoa.store.telling import tell
from canoa.wire import fields, sapparchi
from canoa.wire.bundle import MAX_PARTS, packed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canoa.broker.port import Message, PublishOutcome

log = get_logger(__name__)

REGISTER: Final = "/sapparchi/nodes/register"
RESULTS: Final = "/sapparchi/results"
HEALTH: Final = "/actuator/health"
MANAGER: Final = "Canoa-Manager"

CONNECT_WITHIN_S: Final = 3.0
ANSWER_WITHIN_S: Final = 20.0
"""Longer than a manager takes to find out that its store is away."""
MAX_ANSWER_BYTES: Final = 1024 * 1024
AT_ONCE: Final = 16
"""Requests with answers that are under way; what comes meanwhile goes together. A manager says yes when an answer is
written, which takes it some 25 ms: with few of them, one call after another would wait for that."""


_ABOUT_IT: Final = frozenset({"Undecodable", "PayloadTooLarge", "WrongUse", "EndpointRefused"})


class _Told(msgspec.Struct, frozen=True):
    type: str = ""


class _Refusal(msgspec.Struct, frozen=True):
    error: _Told = _Told()


class _Item(NamedTuple):
    message: Message
    on_outcome: Callable[[PublishOutcome], None]
    together: bool


class ManagerPosts:
    """`urls`: of managers that share a store; whichever answers is asked first the next time."""

    def __init__(self, urls: Sequence[str], *, node_id: str, api_token: str = "") -> None:
        self._urls = deque(url.rstrip("/") for url in urls)
        self._node_id = node_id
        self._headers = {"Authorization": f"Bearer {api_token}"} if api_token else {}
        self._loop = asyncio.get_running_loop()
        timeout = aiohttp.ClientTimeout(total=ANSWER_WITHIN_S, sock_connect=CONNECT_WITHIN_S)
        self._session = aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())
        self.manager_id = ""  # of the one that answered last, if it says so
        self._waiting: deque[_Item] = deque()
        self._is_pumping = False  # at the end of this turn of the loop
        self._tasks: set[asyncio.Task[PublishOutcome]] = set()
        self._is_closed = False

    async def is_up(self) -> bool:
        """Whether a manager answers at all: one whose broker is away still takes what comes here."""
        for url in list(self._urls):
            try:
                async with self._session.get(url + HEALTH, allow_redirects=False) as page:
                    self.manager_id = page.headers.get(MANAGER, "")
                    return True
            except (aiohttp.ClientError, TimeoutError):
                self._put_last(url)
        return False

    async def register(self, message: Message) -> sapparchi.RegistrationAck:
        """Raises `NodeIdTaken`, `WrongUse` where it is refused, and what may be better the next time."""
        said = await self._post(REGISTER, message)
        try:
            return msgspec.json.decode(said, type=sapparchi.RegistrationAck)
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise WrongUse(f"{self._urls[0]}{REGISTER} answered with what is no welcome: {exc}") from exc

    def answer(self, message: Message, on_outcome: Callable[[PublishOutcome], None], *, together: bool) -> None:
        """What comes in one turn of the event loop goes together."""
        if self._is_closed:
            self._loop.call_soon(on_outcome, _closed())
            return
        self._waiting.append(_Item(message, on_outcome, together))
        if not self._is_pumping:
            self._is_pumping = True
            self._loop.call_soon(self._pump)

    async def aclose(self) -> None:
        """Whoever waits hears of it."""
        self._is_closed = True
        waiting, self._waiting = self._waiting, deque()
        for item in waiting:
            self._loop.call_soon(item.on_outcome, _closed())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    def _pump(self) -> None:
        self._is_pumping = False
        while self._waiting and len(self._tasks) < AT_ONCE:
            message, items = self._take()
            task = self._loop.create_task(self._send(message, len(items)), name=f"answers[{self._node_id}]")
            self._tasks.add(task)
            task.add_done_callback(partial(self._on_done, items))

    def _on_done(self, items: list[_Item], task: asyncio.Task[PublishOutcome]) -> None:
        """Here, since a task that is cancelled before its first step runs nothing of its own."""
        self._tasks.discard(task)
        outcome = DeliveryUnknown("closed before a manager answered") if task.cancelled() else task.result()
        for each in items:
            tell(each.on_outcome, outcome)
        self._pump()

    def _take(self) -> tuple[Message, list[_Item]]:
        first = self._waiting.popleft()
        if not first.together:
            return first.message, [first]
        items = [first]
        while self._waiting and self._waiting[0].together and len(items) < MAX_PARTS:
            items.append(self._waiting.popleft())
        message, count = packed([each.message for each in items])[0]
        self._waiting.extendleft(reversed(items[count:]))
        return message, items[:count]

    async def _send(self, message: Message, answers: int) -> PublishOutcome:
        try:
            await self._post(RESULTS, message)
        except WrongUse as exc:  # the next time it would be no other: the manager has heard of it
            log.warning("answer_refused", node_id=self._node_id, answers=answers, reason=str(exc))
        except CanoaError as exc:
            return exc
        except Exception as exc:  # a bug of ours: those who wait must not do so for ever
            log.exception("answer_not_sent", node_id=self._node_id, answers=answers)
            return BrokerUnreachable(f"it cannot be sent: {exc}")
        return None

    async def _post(self, path: str, message: Message) -> bytes:
        """To one after the other, until one takes it."""
        error: BrokerUnreachable | DeliveryUnknown = BrokerUnreachable("no manager is named")
        for url in list(self._urls):
            try:
                return await self._post_to(url + path, message)
            except (BrokerUnreachable, DeliveryUnknown) as exc:
                error = exc
                self._put_last(url)
        raise error

    def _put_last(self, url: str) -> None:
        """Unless somebody else found out meanwhile: the one that is first now may be well."""
        if self._urls[0] == url:
            self._urls.rotate(-1)

    async def _post_to(self, url: str, message: Message) -> bytes:
        headers = fields.http_headers(message) | self._headers
        try:
            async with self._session.post(url, data=message.body, headers=headers, allow_redirects=False) as answer:
                said = await answer.content.read(MAX_ANSWER_BYTES)
                status = answer.status
        except aiohttp.ClientConnectorError as exc:
            raise BrokerUnreachable(f"no manager answers at {url}: {exc}") from exc
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise DeliveryUnknown(f"no answer from {url}: {str(exc) or type(exc).__name__}") from exc
        if 200 <= status < 300:
            return said
        words = said.decode(errors="replace")[:300]
        if status == 409:
            raise NodeIdTaken(self._node_id)
        if _is_about_it(said):
            raise WrongUse(f"{url} refused it (status {status}): {words}")
        raise BrokerUnreachable(f"{url} cannot take it now (status {status}): {words}")


def _closed() -> BrokerUnreachable:
    return BrokerUnreachable("this node no longer speaks to managers over HTTP")


def _is_about_it(said: bytes) -> bool:
    """A manager read it, and would say the same of it again. Anything else (a name that is not allowed there, a proxy)
    says nothing about what was sent."""
    try:
        return msgspec.json.decode(said, type=_Refusal).error.type in _ABOUT_IT
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
