"""Connections to one PostgreSQL database: a pool that comes back by itself, transactions that are repeated when two
programs meet, and what the server's errors mean in the port's words.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

import asyncpg
from asyncpg import exceptions as pg

from canoa.errors import CanoaError, SettingError, StoreFull, StoreUnreachable, WrongUse
from canoa.settings import without_password
from canoa.store.port import Writes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from asyncpg.pool import PoolConnectionProxy

    Connection: TypeAlias = PoolConnectionProxy[asyncpg.Record]
    Pool: TypeAlias = asyncpg.Pool[asyncpg.Record]

Result = TypeVar("Result")

CONNECTIONS: Final = 8
"""How many at most, per store object. More let more batches and questions run at once, and cost the server memory."""

CONNECTIONS_BY_INDEX: Final = 2
"""As many besides for moves of routed tasks, of which one group is written at a time."""

CONNECT_WITHIN_S: Final = 10.0
ANSWER_WITHIN_S: Final = 60.0
"""A link that is silently dead is given up after this; so is a batch that takes longer."""

_CLOSE_WITHIN_S: Final = 5.0
_TRIES: Final = 10
_SESSION: Final = {
    "application_name": "canoa",
    "synchronous_commit": "on",  # kept when `apply` returns, whatever the server's default
    "idle_in_transaction_session_timeout": "30s",  # a frozen program must not hold up the others
    "jit": "off",  # compiling costs more than our queries
    "plan_cache_mode": "force_custom_plan",  # a plan for any limit and any batch would fear the largest
}
_BY_INDEX: Final = {
    **_SESSION,
    "plan_cache_mode": "force_generic_plan",  # planning takes longer than a few rows do
    # Made once, a plan must hold when the tables have grown.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}

_NO_ENTRY: Final = (
    pg.InvalidAuthorizationSpecificationError,
    pg.InvalidCatalogNameError,
    pg.InsufficientPrivilegeError,
    pg.ClientConfigurationError,
)
_UNREACHABLE: Final = (
    pg.PostgresConnectionError,
    pg.OperatorInterventionError,  # shut down, starting up, cancelled by an operator
    pg.InsufficientResourcesError,
    pg.TransactionRollbackError,
    pg.InvalidTransactionStateError,  # a standby, or it was idle for too long
    pg.InterfaceError,
    pg.InternalClientError,
    OSError,
    TimeoutError,
)
_OF_A_VALUE: Final = (
    pg.DataError,
    pg.IntegrityConstraintViolationError,
    pg.ProgramLimitExceededError,  # too long for an index, or for an array
)
DRIVER_ERRORS: Final = (pg.PostgresError, pg.InterfaceError, pg.InternalClientError, OSError, TimeoutError)


NotAsExpected: TypeAlias = pg.InvalidTextRepresentationError


class MetAnother(Exception):
    """Another program wrote the same row at the same time: roll back, and try again."""


class Fetches(Protocol):
    """A connection, or what has some."""

    async def fetch(self, sql: str, *arguments: object) -> list[asyncpg.Record]: ...


class PostgresLink:
    """Not open yet."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.place = without_password(url)
        self.writes = Writes()
        self._pool: Pool | None = None
        self._by_index: Pool | None = None  # for statements that find each of their rows by an index

    async def open(self) -> None:
        async with self._translating():
            self._pool = await self._new_pool(_SESSION, CONNECTIONS)
            self._by_index = await self._new_pool(_BY_INDEX, CONNECTIONS_BY_INDEX)

    async def _new_pool(self, settings: dict[str, str], connections: int) -> Pool:
        """It connects when it is used."""
        with_settings: dict[str, Any] = {"server_settings": settings, "reset": _nothing_to_reset}
        pool: Pool = asyncpg.create_pool(
            self._url,
            min_size=0,  # the driver would complain about a server that is away, once more than we do
            max_size=connections,
            timeout=CONNECT_WITHIN_S,
            command_timeout=ANSWER_WITHIN_S,
            **with_settings,
        )
        await pool
        return pool

    async def aclose(self) -> None:
        pools = [pool for pool in (self._pool, self._by_index) if pool is not None]
        self._pool = self._by_index = None
        for pool in pools:
            try:
                async with asyncio.timeout(_CLOSE_WITHIN_S):
                    await pool.close()
            except (TimeoutError, *DRIVER_ERRORS):
                pool.terminate()

    async def connect(self) -> asyncpg.Connection[asyncpg.Record]:
        """One outside the pool, for whoever needs it whole. The driver's errors are his."""
        return await asyncpg.connect(
            self._url, timeout=CONNECT_WITHIN_S, command_timeout=ANSWER_WITHIN_S, server_settings=_SESSION
        )

    async def fetch(self, sql: str, *arguments: object) -> list[asyncpg.Record]:
        async with self._translating():
            return await self._opened().fetch(sql, *arguments)

    async def write_at_once(self, work: Callable[[Fetches], Awaitable[Result]]) -> Result:
        """In one statement, which finds each of its rows by an index; on disk when it returns. Raises `MetAnother`."""
        async with self._translating():
            try:
                result = await work(self._by_index or self._opened())
            except (MetAnother, pg.DeadlockDetectedError, pg.SerializationError) as exc:
                self.writes.repeated += 1
                raise MetAnother from exc
        self.writes.done += 1
        return result

    async def write(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """In one transaction, on disk when it returns. `work` may be called again from the beginning."""
        async with self._translating():
            for _ in range(_TRIES):
                try:
                    async with self._opened().acquire() as connection, connection.transaction():
                        result = await work(connection)
                except (MetAnother, pg.DeadlockDetectedError, pg.SerializationError):
                    self.writes.repeated += 1
                    continue
                self.writes.done += 1
                return result
        raise StoreUnreachable(f"the store {self.place}: {_TRIES} times in a row another program changed the same rows")

    @asynccontextmanager
    async def _translating(self) -> AsyncIterator[None]:
        try:
            yield
        except DRIVER_ERRORS as exc:
            raise translated(exc, self.place) from exc

    def _opened(self) -> Pool:
        if self._pool is None:
            raise StoreUnreachable(f"the store {self.place} is closed; open it before you use it")
        return self._pool


def translated(exc: BaseException, place: str) -> CanoaError:
    """What a caller can do about it. `place` shows no password."""
    said = str(exc) or type(exc).__name__
    if isinstance(exc, pg.DiskFullError):
        return StoreFull(f"no room left for the store {place} ({said}); make some, then it goes on by itself")
    if isinstance(exc, _NO_ENTRY):
        return SettingError(f"the store {place} cannot be used: {said}; see to CANOA_STORE and its user's rights")
    if isinstance(exc, pg.DuplicateTableError):
        return SettingError(f"the store {place} holds tables of another program ({said}); give Canoa its own database")
    if isinstance(exc, _OF_A_VALUE):
        return WrongUse(f"a value that the store {place} cannot keep: {said}")
    if isinstance(exc, _UNREACHABLE):
        return StoreUnreachable(f"the store {place}: {said}")
    return CanoaError(f"the store {place} refused a statement: {said}")


async def _nothing_to_reset(connection: object) -> None:
    """We leave no state in a session, so cleaning up after each use would only cost a round trip."""
