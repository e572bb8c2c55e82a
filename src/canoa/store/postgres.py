"""The store in a PostgreSQL database: many programs on many machines.

A pool of connections comes back by itself after a cut: see `postgres_link.py`. What a batch does is decided in
`ledger.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from canoa.store import (
    postgres_batch,
    postgres_catalogue,
    postgres_limits,
    postgres_owed,
    postgres_routed,
    postgres_tokens,
    reads,
)
from canoa.store.postgres_link import PostgresLink
from canoa.store.postgres_schema import bring_up_to_date
from canoa.store.routed_notes import Notes
from canoa.store.routed_port import DEFAULT_BREAKERS, DEFAULT_SETTINGS
from canoa.store.routed_questions import RoutedReads
from canoa.store.token_reads import TokenReads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncpg import Record

    from canoa.execution.health import BreakerSettings
    from canoa.execution.plan import Plan
    from canoa.execution.step_moves import Route
    from canoa.execution.step_settings import StepSettings
    from canoa.store.port import (
        Answer,
        Change,
        Lease,
        OutboxRow,
        Retention,
        Writes,
    )
    from canoa.store.routed_port import FullStore, HealthNote, HealthNoted, Move, Moved, NodeRow, NodesPut, Owed
    from canoa.store.token_port import TokenRow
    from canoa.vocabulary import NodeId


class PostgresStore(RoutedReads, TokenReads):
    """In the database that `url` names, which must exist; `open` creates the tables."""

    _dialect = "postgresql"

    def __init__(self, url: str) -> None:
        self._link = PostgresLink(url)
        self._notes = Notes()

    def __repr__(self) -> str:
        return f"PostgresStore({self._link.place!r})"

    # --- Its life -----------------------------------------------------------------------------------

    async def open(self) -> None:
        self._notes = Notes()  # what was known before may have changed meanwhile
        try:
            await self._link.open()
            await bring_up_to_date(self._link)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        await self._link.aclose()

    @property
    def writes(self) -> Writes:
        return self._link.writes

    # --- Changes ------------------------------------------------------------------------------------

    async def apply(self, changes: Sequence[Change]) -> list[Answer]:
        return await self._link.write(partial(postgres_batch.apply, changes=changes))

    async def take_outbox(self, *, now_ms: int, limit: int, for_ms: int) -> list[OutboxRow]:
        work = partial(postgres_limits.take_outbox, now_ms=now_ms, limit=limit, for_ms=for_ms)
        return await self._link.write(work)

    async def forget(self, retention: Retention, *, now_ms: int, limit: int) -> int:
        work = partial(postgres_limits.forget, retention=retention, now_ms=now_ms, limit=limit)
        return await self._link.write(work)

    async def _ask(self, asked: reads.Asked | None) -> list[Record]:
        return [] if asked is None else await self._link.fetch(asked.sql, *asked.arguments)

    # --- Routed tasks -------------------------------------------------------------------------------

    async def advance(
        self,
        moves: Sequence[Move],
        route: Route,
        *,
        paid: Sequence[str] = (),
        settings: StepSettings = DEFAULT_SETTINGS,
    ) -> list[Moved]:
        return await postgres_routed.advance(
            self._link, moves, paid=paid, notes=self._notes, route=route, settings=settings
        )

    async def take_owed(self, *, now_ms: int, limit: int, for_ms: int) -> list[Owed]:
        work = partial(postgres_owed.take_owed, debts=self._notes.debts, now_ms=now_ms, limit=limit, for_ms=for_ms)
        taking = await self._link.write(work)
        taking.settle()
        return taking.owed

    async def identity(self) -> int:
        return await self._link.write(postgres_catalogue.identity)

    async def put_plan(self, plan: Plan, *, now_ms: int) -> bool:
        return await self._link.write(partial(postgres_catalogue.put_plan, plan=plan, now_ms=now_ms))

    async def put_nodes(self, nodes: Sequence[NodeRow]) -> NodesPut:
        return await self._link.write(partial(postgres_catalogue.put_nodes, nodes=nodes))

    async def touch_nodes(self, seen_ms: Mapping[NodeId, int]) -> None:
        await self._link.write(partial(postgres_catalogue.touch_nodes, seen_ms=seen_ms))

    async def forget_nodes(self, *, seen_before_ms: int) -> list[NodeId]:
        return await self._link.write(partial(postgres_catalogue.forget_nodes, seen_before_ms=seen_before_ms))

    async def drop_nodes(self, versions: Mapping[NodeId, int]) -> list[NodeId]:
        return await self._link.write(partial(postgres_catalogue.drop_nodes, versions=versions))

    async def note_health(
        self, notes: Sequence[HealthNote], *, settings: BreakerSettings = DEFAULT_BREAKERS
    ) -> HealthNoted:
        return await self._link.write(partial(postgres_catalogue.note_health, notes=notes, settings=settings))

    # --- Tokens -------------------------------------------------------------------------------------

    async def add_token(self, token: TokenRow) -> bool:
        return await self._link.write(partial(postgres_tokens.add_token, token=token))

    async def revoke_token(self, name: str, *, now_ms: int) -> bool:
        return await self._link.write(partial(postgres_tokens.revoke_token, name=name, now_ms=now_ms))

    async def touch_tokens(self, used_ms: Mapping[bytes, int]) -> None:
        await self._link.write(partial(postgres_tokens.touch_tokens, used_ms=used_ms))

    # --- Leases and limits --------------------------------------------------------------------------

    async def lease(self, name: str, owner: str, *, now_ms: int, for_ms: int) -> Lease | None:
        work = partial(postgres_limits.lease, name=name, owner=owner, now_ms=now_ms, for_ms=for_ms)
        return await self._link.write(work)

    async def release(self, name: str, owner: str) -> None:
        await self._link.write(partial(postgres_limits.release, name=name, owner=owner))

    async def reserve(self, key: str, *, count: int, per_ms: float, burst: int, now_ms: int, within_ms: int) -> int:
        work = partial(
            postgres_limits.reserve,
            key=key,
            count=count,
            per_ms=per_ms,
            burst=burst,
            now_ms=now_ms,
            within_ms=within_ms,
        )
        return await self._link.write(work)

    async def take_slot(self, key: str, holder: str, *, limit: int, now_ms: int, for_ms: int) -> bool:
        work = partial(postgres_limits.take_slot, key=key, holder=holder, limit=limit, now_ms=now_ms, for_ms=for_ms)
        return await self._link.write(work)

    async def free_slots(self, holders: Sequence[tuple[str, str]]) -> None:
        await self._link.write(partial(postgres_limits.free_slots, holders=holders))


_port: type[FullStore] = PostgresStore
