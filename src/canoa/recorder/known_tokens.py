"""The tokens of the store as a guard knows them: read every two seconds, so that a request costs no look-up.

What was read is believed for some seconds, and no longer: a process that is cut off from its store cannot hear that a
token was revoked. Only digests are here; no secret outlives its request.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from canoa.clock import SystemClock
from canoa.errors import StoreUnreachable
from canoa.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from canoa.clock import Clock
    from canoa.store.token_port import TokenRow, TokenStore

log = get_logger(__name__)

READ_EVERY_S: Final = 2.0
"""How soon a new token counts in other processes, and a revoked one no longer does. Each time costs a question."""

BELIEVED_S: Final = 10.0
"""How long a store that does not answer may keep a guard from hearing of a revocation. Shorter would refuse everybody
for the sake of a database that starts again."""

USED_EVERY_MS: Final = 60_000
"""How exactly it is known when a token was used: a write a minute is less than anybody notices."""


def digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


class KnownTokens:
    def __init__(self, store: TokenStore, *, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._rows: Mapping[bytes, TokenRow] = {}
        self._asked_s: float | None = None  # when the question was sent whose answer we have
        self._is_away = False
        self._noted_ms: dict[bytes, int] = {}  # when each was used, as far as that is worth a write
        self._unwritten_ms: dict[bytes, int] = {}

    # --- What a guard asks --------------------------------------------------------------------------

    def find(self, secret: bytes) -> TokenRow | None:
        """The live token of this secret; None: there is none. Raises `StoreUnreachable` where that is not known."""
        self._require_fresh()
        wanted = digest(secret)
        found = self._rows.get(wanted)
        # How long a look among digests takes tells nothing about a secret. Compared like one all the same.
        if found is None or not hmac.compare_digest(found.digest, wanted) or not found.is_live(self._now_ms()):
            return None
        self._note_use(wanted, found)
        return found

    def is_live(self, token: TokenRow) -> bool:
        """Whether one that was found before is still what it was."""
        known = self._rows.get(token.digest)
        return self._is_fresh() and known is not None and known.role is token.role and known.is_live(self._now_ms())

    def _require_fresh(self) -> None:
        if not self._is_fresh():
            raise StoreUnreachable("tokens cannot be checked, since the store does not answer; try again soon")

    def _is_fresh(self) -> bool:
        return self._asked_s is not None and self._clock.monotonic_s() - self._asked_s <= BELIEVED_S

    def _now_ms(self) -> int:
        return int(self._clock.now_s() * 1000)

    def _note_use(self, key: bytes, token: TokenRow) -> None:
        now_ms = self._now_ms()
        last_ms = max(token.used_ms or 0, self._noted_ms.get(key, 0))
        if now_ms - last_ms >= USED_EVERY_MS:
            self._noted_ms[key] = self._unwritten_ms[key] = now_ms

    # --- Keeping up with the store --------------------------------------------------------------------

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[KnownTokens]:
        """Up to date inside the block, as far as the store answers."""
        await self.refresh()
        loop = asyncio.create_task(self._watch(), name="tokens")
        try:
            yield self
        finally:
            loop.cancel()
            with suppress(asyncio.CancelledError):
                await loop

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(READ_EVERY_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Read them again, then write down which were used. A store that is away is told in the log, once."""
        try:
            async with asyncio.timeout(BELIEVED_S / 2):
                await self._read()
                await self._write_uses()
        except Exception as exc:  # also a bug of ours: the loop goes on, and what cannot be read opens nothing
            if not self._is_away:
                log.warning("tokens_wait_for_store", reason=str(exc) or type(exc).__name__)
            self._is_away = True
        else:
            self._is_away = False

    async def _read(self) -> None:
        asked_s = self._clock.monotonic_s()
        rows = await self._store.tokens()
        if self._asked_s is None or asked_s >= self._asked_s:  # an answer that was slow may be overtaken by another
            self._asked_s = asked_s
            self._rows = {row.digest: row for row in rows if row.revoked_ms is None}
            self._noted_ms = {key: at_ms for key, at_ms in self._noted_ms.items() if key in self._rows}

    async def _write_uses(self) -> None:
        used_ms, self._unwritten_ms = self._unwritten_ms, {}
        if used_ms:
            try:
                await self._store.touch_tokens(used_ms)
            except BaseException:
                self._unwritten_ms = used_ms | self._unwritten_ms
                raise
