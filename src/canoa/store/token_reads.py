"""The question about tokens, which differs between databases only in how a statement is sent."""

from __future__ import annotations

from functools import cache

import sqlalchemy as sa

from canoa.store import reads
from canoa.store.questions import StoreReads
from canoa.store.schema import tokens
from canoa.store.token_port import TokenRow
from canoa.vocabulary import Role


class TokenReads(StoreReads):
    """Part of an adapter, like the class it extends."""

    async def tokens(self) -> list[TokenRow]:
        rows = await self._ask(reads.asked(_tokens_query(self._dialect)))
        return [_token_row(row) for row in rows]


@cache
def _tokens_query(dialect: str) -> reads.Query:
    return reads.compiled(dialect, sa.select(*tokens.c).order_by(tokens.c.name))


def _token_row(row: reads.Row) -> TokenRow:
    name, role, created_ms, expires_ms, used_ms, revoked_ms, digest = row
    return TokenRow(
        name=name,
        role=Role(role),
        digest=digest,
        created_ms=created_ms,
        expires_ms=expires_ms,
        used_ms=used_ms,
        revoked_ms=revoked_ms,
    )
