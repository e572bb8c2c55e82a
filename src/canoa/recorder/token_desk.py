"""The desk's part for tokens: make them, show them, revoke them. Who may is the guard's business."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Final

from canoa.clock import as_time, as_time_or_none, now_ms
from canoa.errors import SettingError, TokenNameTaken, UnknownToken
from canoa.logs import get_logger
from canoa.recorder.known_tokens import KnownTokens, digest
from canoa.recorder.token_views import MadeToken, TokenView
from canoa.store.token_port import TokenRow

if TYPE_CHECKING:
    from canoa.store.token_port import TokenStore
    from canoa.vocabulary import Role

log = get_logger(__name__)

SECRET_BYTES: Final = 24
PREFIX: Final = "canoa_"
"""So that whoever finds a secret in a file, or looks for lost ones, knows whose it is."""

MAX_EXPIRES_S: Final = 10 * 365 * 86_400.0
NAME: Final = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"


class TokenDesk:
    """`known`: what a guard asks. What is done here is known there at once."""

    def __init__(self, store: TokenStore) -> None:
        self.known = KnownTokens(store)
        self._store = store

    async def create(self, name: str, role: Role, *, expires_s: float | None = None) -> MadeToken:
        """Raises `TokenNameTaken` where a live one has the name, `SettingError` for a name that cannot be one."""
        _check(name, expires_s)
        secret, at_ms = PREFIX + secrets.token_urlsafe(SECRET_BYTES), now_ms()
        row = TokenRow(
            name=name,
            role=role,
            digest=digest(secret.encode()),
            created_ms=at_ms,
            expires_ms=None if expires_s is None else at_ms + round(expires_s * 1000),
        )
        if not await self._store.add_token(row):
            raise TokenNameTaken(name)
        await self.known.refresh()
        log.info("token_created", name=name, role=role.value)
        return MadeToken(token=_shown(row, at_ms), secret=secret)

    async def list(self) -> list[TokenView]:
        """All there are, by name."""
        at_ms = now_ms()
        return [_shown(row, at_ms) for row in await self._store.tokens()]

    async def revoke(self, name: str) -> TokenView:
        """As it stands then. Raises `UnknownToken`."""
        at_ms = now_ms()
        if not await self._store.revoke_token(name, now_ms=at_ms):
            raise UnknownToken(name)
        await self.known.refresh()
        log.info("token_revoked", name=name)
        found = [row for row in await self._store.tokens() if row.name == name]
        if not found:  # forgotten meanwhile
            raise UnknownToken(name)
        return _shown(found[0], at_ms)


def _check(name: str, expires_s: float | None) -> None:
    if not re.fullmatch(NAME, name):
        raise SettingError(
            f"a token cannot be called {name!r:.80}; use up to 64 letters, digits, dots, dashes and underscores"
        )
    if expires_s is not None and not 0 < expires_s <= MAX_EXPIRES_S:
        raise SettingError(f"a token cannot expire in {expires_s:g} s; use more than 0, and up to ten years")


def _shown(row: TokenRow, at_ms: int) -> TokenView:
    state = "revoked" if row.revoked_ms is not None else "live" if row.is_live(at_ms) else "expired"
    return TokenView(
        name=row.name,
        role=row.role,
        state=state,
        created_at=as_time(row.created_ms),
        expires_at=as_time_or_none(row.expires_ms),
        used_at=as_time_or_none(row.used_ms),
        revoked_at=as_time_or_none(row.revoked_ms),
    )
