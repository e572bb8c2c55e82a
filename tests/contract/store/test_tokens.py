"""Tokens: by name and digest, revoked, used, and forgotten."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

import pytest
from tests.contract.store.words import NOW_MS, accepted

from canoa.store.port import Retention
from canoa.store.retention import TOKEN_MS
from canoa.store.token_port import TokenRow
from canoa.vocabulary import Role

if TYPE_CHECKING:
    from tests.contract.store.conftest import OpenStore

    from canoa.store.routed_port import FullStore

DAY_MS = 86_400_000


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def token(name: str, secret: str = "a secret", **fields: Any) -> TokenRow:
    known = {"name": name, "role": Role.VIEWER, "digest": digest(secret), "created_ms": NOW_MS}
    return TokenRow(**{**known, **fields})


async def forget(store: FullStore, *, at_ms: int) -> int:
    """While something happens, as it does in a store that is used."""
    await accepted(store, f"task-{at_ms}", at_ms=at_ms)
    return await store.forget(Retention(), now_ms=at_ms, limit=100)


async def test_tokens_are_found_by_name_as_they_were_added(store: FullStore, open_store: OpenStore) -> None:
    added = [
        token("ci", "one", role=Role.OPERATOR, expires_ms=NOW_MS + DAY_MS),
        token("gateway", "two", role=Role.NODE),
        token("root", "three", role=Role.ADMIN),
    ]

    for each in reversed(added):
        assert await store.add_token(each)

    assert await store.tokens() == added
    assert await (await open_store()).tokens() == added


async def test_a_live_token_keeps_its_name(store: FullStore) -> None:
    first = token("ci", "one", expires_ms=NOW_MS + DAY_MS)
    await store.add_token(first)

    assert not await store.add_token(token("ci", "two", role=Role.ADMIN))

    assert await store.tokens() == [first]


async def test_the_same_token_added_again_is_kept_once(store: FullStore) -> None:
    await store.add_token(token("ci"))

    assert await store.add_token(token("ci"))

    assert await store.tokens() == [token("ci")]


async def test_of_many_who_want_a_name_one_gets_it(store: FullStore, open_store: OpenStore) -> None:
    other = await open_store()
    wanted = [token("ci", f"secret {number}") for number in range(20)]

    added = await asyncio.gather(
        *((store if number % 2 else other).add_token(each) for number, each in enumerate(wanted))
    )

    assert added.count(True) == 1
    assert await store.tokens() == [wanted[added.index(True)]]


async def test_the_name_of_a_revoked_token_may_be_given_again(store: FullStore) -> None:
    await store.add_token(token("ci", "one"))
    await store.touch_tokens({digest("one"): NOW_MS + 5})
    await store.revoke_token("ci", now_ms=NOW_MS + 10)

    new = token("ci", "two", role=Role.ADMIN, created_ms=NOW_MS + 20)
    assert await store.add_token(new)

    assert await store.tokens() == [new]


async def test_the_name_of_an_expired_token_may_be_given_again(store: FullStore) -> None:
    await store.add_token(token("ci", "one", expires_ms=NOW_MS + 100))
    new = token("ci", "two", created_ms=NOW_MS + 100)

    assert not await store.add_token(token("ci", "two", created_ms=NOW_MS + 99))
    assert await store.add_token(new)

    assert await store.tokens() == [new]


async def test_a_revoked_token_says_since_when_and_stays_so(store: FullStore) -> None:
    await store.add_token(token("ci", "one"))
    await store.add_token(token("guest", "two"))

    assert await store.revoke_token("ci", now_ms=NOW_MS + 10)
    assert await store.revoke_token("ci", now_ms=NOW_MS + 20)

    assert await store.tokens() == [token("ci", "one", revoked_ms=NOW_MS + 10), token("guest", "two")]


async def test_a_token_that_is_not_there_cannot_be_revoked(store: FullStore) -> None:
    assert not await store.revoke_token("nobody", now_ms=NOW_MS)
    assert not await store.revoke_token("nul \0 and half \ud800", now_ms=NOW_MS)


async def test_a_use_is_noted_and_never_goes_back(store: FullStore) -> None:
    await store.add_token(token("ci", "one"))
    await store.add_token(token("guest", "two"))

    await store.touch_tokens({digest("one"): NOW_MS + 50, digest("unknown"): NOW_MS + 60})
    await store.touch_tokens({digest("one"): NOW_MS + 40})
    await store.touch_tokens({})

    assert [each.used_ms for each in await store.tokens()] == [NOW_MS + 50, None]


async def test_uses_noted_by_several_programs_at_once_are_all_kept(store: FullStore, open_store: OpenStore) -> None:
    other = await open_store()
    names = [f"token-{number:02}" for number in range(10)]
    for name in names:
        await store.add_token(token(name, name))
    uses = {digest(name): NOW_MS + number for number, name in enumerate(names, start=1)}
    crosswise = dict(reversed(uses.items()))

    await asyncio.gather(
        *(each.touch_tokens(used_ms) for _ in range(10) for each, used_ms in ((store, uses), (other, crosswise)))
    )

    assert [each.used_ms for each in await store.tokens()] == [NOW_MS + number for number in range(1, 11)]


@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_a_token_that_opens_nothing_is_forgotten_later(store: FullStore, how: str) -> None:
    await store.add_token(token("ci", "one", expires_ms=NOW_MS + 10 if how == "expired" else None))
    await store.add_token(token("guest", "two", expires_ms=NOW_MS + 10 * TOKEN_MS))
    if how == "revoked":
        await store.revoke_token("ci", now_ms=NOW_MS + 10)

    assert await forget(store, at_ms=NOW_MS + TOKEN_MS) == 0
    assert await forget(store, at_ms=NOW_MS + TOKEN_MS + 11) == 1

    assert [each.name for each in await store.tokens()] == ["guest"]


async def test_a_clock_that_jumps_ahead_by_a_year_forgets_no_token(store: FullStore) -> None:
    await store.add_token(token("ci", expires_ms=NOW_MS + DAY_MS))
    await accepted(store, "a")

    assert await store.forget(Retention(), now_ms=NOW_MS + 365 * DAY_MS, limit=100) == 0

    assert [each.name for each in await store.tokens()] == ["ci"]


def test_what_is_shown_of_a_token_has_no_digest() -> None:
    assert repr(token("ci")) == "TokenRow('ci', viewer)"
