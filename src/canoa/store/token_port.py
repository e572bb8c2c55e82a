"""What the API needs from a store: tokens by name, with their role and the digest of their secret.

Part of the port in `port.py`; `tests/contract/store/` holds both databases to it. The secret itself is never stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from canoa.vocabulary import Role

if TYPE_CHECKING:
    from collections.abc import Mapping


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    """`digest`: SHA-256 of the secret. A fast hash is enough: a secret has 24 random bytes, which nobody guesses.
    `used_ms`: about when it was shown last."""

    name: str
    role: Role
    digest: bytes
    created_ms: int
    expires_ms: int | None = None  # None: never
    used_ms: int | None = None
    revoked_ms: int | None = None

    def __repr__(self) -> str:
        return f"TokenRow({self.name!r}, {self.role})"

    def is_live(self, now_ms: int) -> bool:
        return self.revoked_ms is None and (self.expires_ms is None or now_ms < self.expires_ms)


class TokenStore(Protocol):
    """The tokens of a store. Errors as in `port.Store`."""

    async def add_token(self, token: TokenRow) -> bool:
        """Keep it, in the place of one of that name that was revoked, or expired before this was created. False: a
        live one has the name; nothing changed. The very same token again is kept once."""

    async def revoke_token(self, name: str, *, now_ms: int) -> bool:
        """From now on it opens nothing. One that was revoked stays so. False: there is none of that name."""

    async def touch_tokens(self, used_ms: Mapping[bytes, int]) -> None:
        """When those of these digests were used; an earlier time than the known one changes nothing."""

    async def tokens(self) -> list[TokenRow]:
        """All that are kept, by name: also those that were revoked or have expired, until they are forgotten."""
