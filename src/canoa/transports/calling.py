"""Calls endpoints of nodes over HTTP: the one place where a manager connects to an address that a node gave.

What may be called is decided in `execution/endpoints.py`. It is asked for an endpoint as it is written and for every
address that a name leads to, which are the only ones that are connected to; and what is never called is asked once more
for the very address that a socket is made for. Nothing is followed elsewhere, and no proxy is asked.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeVar

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from canoa.execution.endpoints import MAX_ENDPOINTS, Endpoint, EndpointRule, Reason, Refusal, read_endpoint
from canoa.logs import get_logger
from canoa.settings import without_password
from canoa.transports.names import Names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from aiohttp.abc import ResolveResult
    from aiohttp.connector import AddrInfoType

    from canoa.execution.endpoints import Allowed, IpAddress
    from canoa.store.routed_port import NodeRow
    from canoa.vocabulary import NodeId

log = get_logger(__name__)

K = TypeVar("K")
V = TypeVar("V")

CONNECT_WITHIN_S: Final = 2.0
"""A machine that is gone says nothing: its work moves after this."""
ANSWER_WITHIN_S: Final = 10.0
MAX_CONNECTIONS: Final = 500

LOOK_UP_WITHIN_S: Final = 2.0
MAX_LOOK_UPS: Final = 4
"""For registrations, at a time. Each takes a thread, for as long as it takes."""

REMEMBERED_S: Final = 60.0
"""How long a name that led to nowhere we may go is not tried again."""
MAX_REMEMBERED: Final = 10_000
"""Names and nodes: whoever says more of them is told anew."""

_USUAL: Final = aiohttp.ClientTimeout(total=ANSWER_WITHIN_S, sock_connect=CONNECT_WITHIN_S)


class NotCalled(OSError):
    """The endpoint may not be called. An `OSError`, as the HTTP library expects of what cannot be connected to."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.why)
        self.refusal = refusal


class Caller:
    """`own_ports`: where this program listens. `resolver`: who looks names up; it is closed with the caller."""

    def __init__(
        self, allowed: Allowed, *, own_ports: frozenset[int] = frozenset(), resolver: AbstractResolver | None = None
    ) -> None:
        self._rule = EndpointRule(allowed, own_ports=own_ports, is_ours=is_ours)
        self._judged = lru_cache(maxsize=MAX_ENDPOINTS)(self._rule.judge)
        self._loop = asyncio.get_running_loop()
        self._resolver = _Resolver(self, resolver or Names())
        self._may_look = asyncio.Semaphore(MAX_LOOK_UPS)
        self._looks: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None
        self._names: dict[tuple[str, int], tuple[float, Refusal]] = {}  # that led nowhere, and since when
        self._told: dict[NodeId, tuple[str, str]] = {}
        self.refused: Counter[str] = Counter()

    # --- What may be called -------------------------------------------------------------------------------

    def refusal(self, row: NodeRow) -> Refusal | None:
        """Why its endpoint is not called, as far as that is known without looking its name up. None: it may be, or it
        has none: a node that is reached otherwise may write there what it likes."""
        endpoint = read_endpoint(row.endpoint)
        if isinstance(endpoint, Refusal):
            return None if endpoint.reason is Reason.SCHEME and row.protocol else endpoint
        return None if endpoint is None else self._known(endpoint)

    def may_call(self, row: NodeRow) -> bool:
        return self.refusal(row) is None

    def keeps_away(self, row: NodeRow) -> Refusal | None:
        """Why it cannot be reached at all: its endpoint is not called, and there is no other way to it."""
        return self.refusal(row) if row.has_address_alone else None

    async def look_up(self, row: NodeRow) -> None:
        """So that `refusal` knows where its name leads. What is not found out in time, the first call finds out."""
        endpoint = read_endpoint(row.endpoint)
        if not isinstance(endpoint, Endpoint) or endpoint.is_address:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_UP_WITHIN_S):
                await self._may_look.acquire()
                look = self._loop.create_task(self._look_up(endpoint), name=f"look_up[{endpoint.host}]")
                self._looks.add(look)
                look.add_done_callback(self._looks.discard)
                await asyncio.shield(look)

    async def _look_up(self, endpoint: Endpoint) -> None:
        """To its end, whoever still waits for it: the thread that looks cannot be called back."""
        try:
            await self._resolver.resolve(endpoint.host, endpoint.port, socket.AF_UNSPEC)
        except (OSError, ValueError) as exc:  # also a name that cannot be one
            log.debug("endpoint_not_found", host=endpoint.host, reason=str(exc))
        finally:
            self._may_look.release()

    def _known(self, endpoint: Endpoint) -> Refusal | None:
        if endpoint.is_address:
            return self._judged(endpoint.host, endpoint.host, endpoint.port)
        since_s, refusal = self._names.get((endpoint.host, endpoint.port), (0.0, None))
        return refusal if self._loop.time() < since_s + REMEMBERED_S else None

    def judge_found(self, host: str, port: int, found: list[ResolveResult]) -> list[ResolveResult]:
        """Those of a name's addresses that may be called. Raises `NotCalled` where none may."""
        judged = [(each, self._rule.judge(host, each["host"], port)) for each in found]
        refusals = [refusal for _, refusal in judged if refusal is not None]
        if refusals and len(refusals) == len(judged):
            _put(self._names, (host, port), (self._loop.time(), refusals[0]))
            raise NotCalled(refusals[0])
        self._names.pop((host, port), None)
        return [each for each, refusal in judged if refusal is None]

    # --- Who is told --------------------------------------------------------------------------------------

    def note(self, row: NodeRow, refusal: Refusal) -> None:
        """It was not called, or not accepted: counted, and said once of every node and endpoint."""
        self.refused[refusal.reason.value] += 1
        said = (row.endpoint, refusal.reason.value)
        if self._told.get(row.node_id) != said:
            _put(self._told, row.node_id, said)
            shown = without_password(row.endpoint)
            log.warning("endpoint_refused", node_id=row.node_id, endpoint=shown, reason=refusal.why)

    # --- Calling ------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def call(
        self,
        method: str,
        row: NodeRow,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: aiohttp.ClientTimeout = _USUAL,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The node's answer, whatever it is. Raises `NotCalled` before anything leaves, or what `aiohttp` does."""
        endpoint = read_endpoint(row.endpoint)
        refusal = endpoint if isinstance(endpoint, Refusal) else self.refusal(row)
        if refusal is not None or not isinstance(endpoint, Endpoint):
            raise NotCalled(refusal or Refusal(Reason.MALFORMED, "it is no address"))
        place = URL.build(scheme=endpoint.scheme, host=endpoint.host, port=endpoint.port)
        url = place.with_path(endpoint.path + path, encoded=True)
        try:
            async with self._client().request(
                method, url, data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as answer:
                yield answer
        except aiohttp.ClientConnectorError as exc:
            if isinstance(exc.os_error, NotCalled):
                raise exc.os_error from exc
            raise

    async def aclose(self) -> None:
        for look in self._looks:
            look.cancel()
        await asyncio.gather(*self._looks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
        await self._resolver.close()

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=MAX_CONNECTIONS, resolver=self._resolver, socket_factory=self._new_socket
            )
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, trust_env=False
            )
        return self._session

    def _new_socket(self, info: AddrInfoType) -> socket.socket:
        """For the address that is connected to next, wherever it came from."""
        family, kind, protocol, _, place = info
        refusal = self._rule.never(str(place[0]), int(place[1]))
        if refusal is not None:
            raise NotCalled(refusal)
        return socket.socket(family, kind, protocol)


class _Resolver(AbstractResolver):
    """Gives only addresses that may be called."""

    def __init__(self, caller: Caller, inner: AbstractResolver) -> None:
        self._caller = caller
        self._inner = inner

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        allowed = self._caller.judge_found(host, port, found)
        if not allowed:
            raise OSError(f"{host} has no address")
        return allowed

    async def close(self) -> None:
        await self._inner.close()


def is_ours(address: IpAddress) -> bool:
    """Whether it is this machine's: only to those a socket can be bound. Nothing is sent."""
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
            return True
    except OSError:
        return False


def _put(memory: dict[K, V], key: K, value: V) -> None:
    """The oldest goes where there is no room."""
    memory.pop(key, None)
    memory[key] = value
    if len(memory) > MAX_REMEMBERED:
        del memory[next(iter(memory))]
