"""Tokens from outside: the need that commands have, and the way that goes straight to the store.

The other way is the HTTP API (`remote.py`). There is none over the broker: a secret must not pass where others listen.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from canoa.recorder.token_desk import TokenDesk
    from canoa.recorder.token_views import MadeToken, TokenView
    from canoa.vocabulary import Role

T = TypeVar("T")


class TokenDoor(Protocol):
    """Blocking, for one thread. Every method raises Canoa's own errors."""

    def create_token(self, name: str, role: Role, *, expires_s: float | None = None) -> MadeToken: ...

    def tokens(self) -> list[TokenView]: ...

    def revoke_token(self, name: str) -> TokenView: ...

    def close(self) -> None:
        """Closing twice is allowed."""


class StoredTokens:
    """In the store itself: whoever may write there needs no token. Not inside a running event loop."""

    def __init__(self, store_url: str) -> None:
        self._url = store_url

    def create_token(self, name: str, role: Role, *, expires_s: float | None = None) -> MadeToken:
        return self._asked(lambda desk: desk.create(name, role, expires_s=expires_s))

    def tokens(self) -> list[TokenView]:
        return self._asked(lambda desk: desk.list())

    def revoke_token(self, name: str) -> TokenView:
        return self._asked(lambda desk: desk.revoke(name))

    def close(self) -> None:
        """Nothing stays open between questions."""

    def _asked(self, question: Callable[[TokenDesk], Awaitable[T]]) -> T:
        return asyncio.run(self._ask(question))

    async def _ask(self, question: Callable[[TokenDesk], Awaitable[T]]) -> T:
        from canoa.recorder.token_desk import TokenDesk
        from canoa.store.opening import new_store

        store = new_store(self._url)
        await store.open()
        try:
            return await question(TokenDesk(store))
        finally:
            await store.aclose()


def _port(stored: StoredTokens) -> TokenDoor:
    return stored
