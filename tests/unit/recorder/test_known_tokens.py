"""What a guard knows of tokens: as fresh as it says, and nothing where the store is away. On a real SQLite file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.contract.store.empty_file import put_empty_store

from canoa.errors import SettingError, StoreUnreachable, TokenNameTaken, UnknownToken
from canoa.recorder import known_tokens
from canoa.recorder.known_tokens import BELIEVED_S, USED_EVERY_MS, KnownTokens, digest
from canoa.recorder.token_desk import TokenDesk
from canoa.store.sqlite import SqliteStore
from canoa.store.token_port import TokenRow
from canoa.testing import VirtualClock
from canoa.vocabulary import Role

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SECRET = b"canoa_a-secret-of-a-test"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    put_empty_store(tmp_path / "canoa.db")
    store = SqliteStore(tmp_path / "canoa.db")
    await store.open()
    yield store
    await store.aclose()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def known(store: SqliteStore, clock: VirtualClock) -> KnownTokens:
    """One token, which expires in an hour, is known."""
    at_ms = int(clock.now_s() * 1000)
    await store.add_token(
        TokenRow(name="ci", role=Role.OPERATOR, digest=digest(SECRET), created_ms=at_ms, expires_ms=at_ms + 3_600_000)
    )
    known = KnownTokens(store, clock=clock)
    await known.refresh()
    return known


def found(known: KnownTokens, secret: bytes = SECRET) -> TokenRow:
    token = known.find(secret)
    assert token is not None
    return token


async def test_a_token_is_found_by_its_secret_alone(known: KnownTokens) -> None:
    assert (found(known).name, found(known).role) == ("ci", Role.OPERATOR)

    for wrong in (b"", b"ci", SECRET[:-1], SECRET + b"x", digest(SECRET)):
        assert known.find(wrong) is None


async def test_a_token_expires_to_the_moment_without_another_look_at_the_store(
    known: KnownTokens, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_tokens, "BELIEVED_S", 1e9)
    token = found(known)
    clock.advance(3_599.9)
    assert known.is_live(token)

    clock.advance(0.1)

    assert known.find(SECRET) is None
    assert not known.is_live(token)


async def test_a_revoked_token_is_gone_with_the_next_look(known: KnownTokens, store: SqliteStore) -> None:
    token = found(known)
    await store.revoke_token("ci", now_ms=1)
    assert known.is_live(token)

    await known.refresh()

    assert known.find(SECRET) is None
    assert not known.is_live(token)


async def test_a_name_that_was_given_again_does_not_revive_the_old_secret(
    known: KnownTokens, store: SqliteStore
) -> None:
    token = found(known)
    await store.revoke_token("ci", now_ms=1)
    await store.add_token(TokenRow(name="ci", role=Role.OPERATOR, digest=digest(b"another"), created_ms=2))

    await known.refresh()

    assert known.find(SECRET) is None
    assert not known.is_live(token)
    assert found(known, b"another").name == "ci"


async def test_a_store_that_was_never_reached_opens_nothing(tmp_path: Path, clock: VirtualClock) -> None:
    known = KnownTokens(SqliteStore(tmp_path / "closed.db"), clock=clock)
    await known.refresh()

    with pytest.raises(StoreUnreachable, match="try again"):
        known.find(SECRET)


async def test_while_the_store_is_away_what_was_read_is_believed_for_some_seconds_only(
    known: KnownTokens, store: SqliteStore, clock: VirtualClock
) -> None:
    token = found(known)
    await store.aclose()

    clock.advance(BELIEVED_S)
    await known.refresh()
    assert found(known) == token

    clock.advance(0.001)
    with pytest.raises(StoreUnreachable):
        known.find(SECRET)
    with pytest.raises(StoreUnreachable):  # nor does it say which secrets it does not know
        known.find(b"unknown")
    assert not known.is_live(token)

    await store.open()
    await known.refresh()
    assert found(known) == token


async def test_a_use_is_written_at_most_once_a_minute(
    known: KnownTokens, store: SqliteStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_tokens, "BELIEVED_S", 1e9)
    written = store.writes.done
    first_ms = int(clock.now_s() * 1000)
    for _ in range(10):
        found(known)
        await known.refresh()
        clock.advance(1)
    assert store.writes.done == written + 1
    assert (await store.tokens())[0].used_ms == first_ms

    clock.advance(USED_EVERY_MS / 1000 - 10)
    found(known)
    await known.refresh()

    assert (await store.tokens())[0].used_ms == first_ms + USED_EVERY_MS


async def test_a_use_that_another_process_wrote_is_not_written_again(
    known: KnownTokens, store: SqliteStore, clock: VirtualClock
) -> None:
    at_ms = int(clock.now_s() * 1000)
    await store.touch_tokens({digest(SECRET): at_ms - 1})
    await known.refresh()
    written = store.writes.done

    found(known)
    await known.refresh()

    assert store.writes.done == written


async def test_a_use_that_could_not_be_written_is_written_later(
    known: KnownTokens, store: SqliteStore, clock: VirtualClock
) -> None:
    found(known)
    at_ms = int(clock.now_s() * 1000)
    await store.aclose()
    await known.refresh()

    await store.open()
    await known.refresh()

    assert (await store.tokens())[0].used_ms == at_ms


def is_written(secret: str, folder: Path) -> bool:
    return any(secret.encode() in file.read_bytes() for file in folder.iterdir())


# --- The desk ---------------------------------------------------------------------------------------------


async def test_what_the_desk_makes_and_revokes_is_known_at_once(store: SqliteStore) -> None:
    desk = TokenDesk(store)

    made = await desk.create("ci", Role.VIEWER, expires_s=60)

    assert found(desk.known, made.secret.encode()).name == "ci"
    assert (await desk.revoke("ci")).state == "revoked"
    assert desk.known.find(made.secret.encode()) is None


async def test_a_secret_is_told_once_and_kept_nowhere(store: SqliteStore, tmp_path: Path) -> None:
    desk = TokenDesk(store)

    made = await desk.create("ci", Role.VIEWER)
    other = await desk.create("guest", Role.VIEWER)

    assert made.secret != other.secret
    assert len(made.secret.removeprefix("canoa_")) == 32  # 24 bytes
    assert made.secret not in repr(made)
    await store.aclose()
    assert not is_written(made.secret, tmp_path)


async def test_a_name_is_given_to_one_live_token(store: SqliteStore) -> None:
    desk = TokenDesk(store)
    await desk.create("ci", Role.VIEWER)

    with pytest.raises(TokenNameTaken, match="canoa token revoke ci"):
        await desk.create("ci", Role.ADMIN)
    await desk.revoke("ci")
    await desk.create("ci", Role.ADMIN)

    assert [(each.name, each.role, each.state) for each in await desk.list()] == [("ci", Role.ADMIN, "live")]


@pytest.mark.parametrize("name", ["", "-x", "a b", "a/b", "x" * 65, "ü", "a\n", "\0"])
async def test_a_name_that_cannot_be_one_is_refused(store: SqliteStore, name: str) -> None:
    with pytest.raises(SettingError, match="cannot be called"):
        await TokenDesk(store).create(name, Role.VIEWER)


@pytest.mark.parametrize("expires_s", [0, -1, float("inf"), float("nan"), 1e9])
async def test_a_time_that_cannot_be_kept_is_refused(store: SqliteStore, expires_s: float) -> None:
    with pytest.raises(SettingError, match="expire"):
        await TokenDesk(store).create("ci", Role.VIEWER, expires_s=expires_s)


async def test_a_token_that_nobody_made_cannot_be_revoked(store: SqliteStore) -> None:
    with pytest.raises(UnknownToken, match="canoa token list"):
        await TokenDesk(store).revoke("nobody")
