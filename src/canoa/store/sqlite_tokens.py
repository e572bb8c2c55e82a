"""Tokens on SQLite. Each function runs inside one exclusive transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canoa.store.packing import plain

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from canoa.store.token_port import TokenRow

_ADD: Final = """
INSERT INTO tokens (name, role, created_ms, expires_ms, digest) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET role = excluded.role, created_ms = excluded.created_ms,
  expires_ms = excluded.expires_ms, used_ms = NULL, revoked_ms = NULL, digest = excluded.digest
WHERE tokens.revoked_ms IS NOT NULL OR tokens.expires_ms <= excluded.created_ms
"""
_IS_KEPT: Final = "SELECT 1 FROM tokens WHERE name = ? AND digest = ?"
_REVOKE: Final = "UPDATE tokens SET revoked_ms = coalesce(revoked_ms, ?) WHERE name = ?"
_TOUCH: Final = "UPDATE tokens SET used_ms = ? WHERE digest = ? AND coalesce(used_ms, 0) < ?"


def add_token(connection: sqlite3.Connection, token: TokenRow) -> bool:
    name = plain(token.name)
    if connection.execute(_IS_KEPT, (name, token.digest)).fetchone():
        return True
    values = (name, token.role.value, token.created_ms, token.expires_ms, token.digest)
    return connection.execute(_ADD, values).rowcount == 1


def revoke_token(connection: sqlite3.Connection, name: str, *, now_ms: int) -> bool:
    return connection.execute(_REVOKE, (now_ms, plain(name))).rowcount == 1


def touch_tokens(connection: sqlite3.Connection, used_ms: Mapping[bytes, int]) -> None:
    connection.executemany(_TOUCH, [(at_ms, digest, at_ms) for digest, at_ms in used_ms.items()])
