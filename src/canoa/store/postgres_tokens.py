"""Tokens on PostgreSQL. Each function runs inside one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canoa.store.packing import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canoa.store.postgres_link import Connection
    from canoa.store.token_port import TokenRow

_ADD: Final = """
INSERT INTO tokens (name, role, created_ms, expires_ms, digest) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (name) DO UPDATE SET role = excluded.role, created_ms = excluded.created_ms,
  expires_ms = excluded.expires_ms, used_ms = NULL, revoked_ms = NULL, digest = excluded.digest
WHERE tokens.revoked_ms IS NOT NULL OR tokens.expires_ms <= excluded.created_ms
"""
_IS_KEPT: Final = "SELECT 1 FROM tokens WHERE name = $1 AND digest = $2"
_REVOKE: Final = "UPDATE tokens SET revoked_ms = coalesce(revoked_ms, $1) WHERE name = $2"
# In the order of names: two programs that note the same ones wait for each other, and do not meet crosswise.
_TOUCH: Final = """
UPDATE tokens SET used_ms = new.used_ms FROM (
  SELECT tokens.name, used.used_ms FROM unnest($1::bytea[], $2::bigint[]) AS used (digest, used_ms)
  JOIN tokens ON tokens.digest = used.digest ORDER BY tokens.name FOR UPDATE OF tokens
) AS new WHERE tokens.name = new.name AND coalesce(tokens.used_ms, 0) < new.used_ms
"""


async def add_token(connection: Connection, token: TokenRow) -> bool:
    name = plain(token.name)
    if await connection.fetchval(_IS_KEPT, name, token.digest):
        return True
    status = await connection.execute(_ADD, name, token.role.value, token.created_ms, token.expires_ms, token.digest)
    return status == "INSERT 0 1"


async def revoke_token(connection: Connection, name: str, *, now_ms: int) -> bool:
    return await connection.execute(_REVOKE, now_ms, plain(name)) == "UPDATE 1"


async def touch_tokens(connection: Connection, used_ms: Mapping[bytes, int]) -> None:
    await connection.execute(_TOUCH, list(used_ms), list(used_ms.values()))
