"""What the desk tells about tokens, like `views.py` about tasks. Times are UTC."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - FastAPI reads the annotations

from canoa.vocabulary import Role  # noqa: TC001 - FastAPI reads the annotations


@dataclass(frozen=True, kw_only=True)
class TokenView:
    """`state`: live, expired or revoked. `used_at`: about when it was shown last, to the minute."""

    name: str
    role: Role
    state: str
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class MadeToken:
    """`secret`: what its owner shows. It is told this once, and kept nowhere."""

    token: TokenView
    secret: str = field(repr=False)
