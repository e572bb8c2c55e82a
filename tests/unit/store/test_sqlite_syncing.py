"""What is committed on the event loop: a kill cannot undo it, so it may leave; what was heard waits for the disk."""

from __future__ import annotations

import asyncio
import shutil
import threading
from typing import TYPE_CHECKING

import pytest
from tests.contract.store.routed_words import ONE, answer, begin
from tests.unit.store.desks import Desk, rows_in, turns

from canoa.errors import StoreUnreachable
from canoa.execution.outcome import Outcome
from canoa.execution.step_moves import Verdict
from canoa.store import sqlite_link, sqlite_pace, sqlite_syncing
from canoa.store.routed_port import DEFAULT_SETTINGS

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

    from canoa.store.routed_port import Moved


class Disk:
    """Takes no sync while it is held."""

    def __init__(self) -> None:
        self.is_free = threading.Event()
        self.is_free.set()
        self.syncs = 0
        self.error: OSError | None = None

    def sync(self, _: int) -> None:
        assert self.is_free.wait(10)
        self.syncs += 1
        if self.error is not None:
            raise self.error


@pytest.fixture
def disk(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """Quick enough for the event loop; and nothing waits for it but what is told to."""
    disk = Disk()
    monkeypatch.setattr(sqlite_pace, "LINGER_S", 0.0)
    monkeypatch.setattr(sqlite_syncing, "_to_disk", disk.sync)
    monkeypatch.setattr(sqlite_pace, "QUICK_S", 10.0)
    desk.store._routed()._pace._took_s = 0.0
    yield disk
    disk.is_free.set()


async def begun(desk: Desk, name: str) -> asyncio.Task[list[Moved]]:
    return await desk.waiting(begin(name))


async def test_the_end_leaves_once_a_kill_cannot_undo_it_and_is_answered_once_it_is_on_disk(
    desk: Desk, disk: Disk
) -> None:
    disk.is_free.clear()
    beginning = await begun(desk, "a")
    ending = desk.begun(answer("a.0.1.1", "x"))
    await turns()

    assert desk.left == ["a.0.1.1"]
    assert desk.owed == ["a.0.final.0"]
    assert desk.rows("SELECT standing FROM tasks") == [("ok",)]  # as another program, or the next manager, sees it
    assert not beginning.done()
    assert not ending.done()

    disk.is_free.set()
    (end,) = await ending
    assert (await beginning)[0].verdict is Verdict.TAKEN
    assert end.outcome is Outcome.OK
    assert desk.owed == ["a.0.final.0"]  # and not once more


async def test_what_was_sent_before_it_is_on_disk_is_owed_until_the_broker_has_it(desk: Desk, disk: Disk) -> None:
    beginning = await begun(desk, "a")
    await desk.moved(answer("a.0.1.1", "x"))
    await beginning
    assert desk.count("owed") == 1

    await desk.moved(paid=["a.0.final.0"])

    assert desk.count("owed") == 0


async def test_a_log_that_cannot_be_synced_is_written_into_the_file_before_anybody_is_told(
    desk: Desk, disk: Disk, tmp_path: Path
) -> None:
    disk.error = OSError("the disk is broken")
    beginning = await begun(desk, "a")
    (end,) = await desk.moved(answer("a.0.1.1", "x"))

    assert (await beginning)[0].verdict is Verdict.TAKEN
    assert end.outcome is Outcome.OK
    shutil.copy(desk.path, tmp_path / "file-alone.db")  # without its log
    assert rows_in(tmp_path / "file-alone.db", "SELECT standing FROM tasks") == [("ok",)]


async def test_a_disk_that_stays_broken_is_said_and_what_comes_again_waits_for_a_good_one(
    desk: Desk, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: sqlite3.Connection) -> None:
        raise OSError("still broken")

    monkeypatch.setattr(sqlite_syncing, "MEND_EVERY_S", 0.01)
    disk.error = OSError("the disk is broken")
    with monkeypatch.context() as broken:
        broken.setattr(sqlite_link, "checkpoint", fail)
        beginning = await begun(desk, "a")
        with pytest.raises(StoreUnreachable, match="still broken"):
            await desk.moved(answer("a.0.1.1", "x"))
        with pytest.raises(StoreUnreachable):
            await beginning

        assert desk.store._routed()._syncer.is_needed  # nothing is believed until it is mended

    disk.error = None
    syncs = disk.syncs
    (again,) = await desk.moved(begin("a"))
    (end_again,) = await desk.moved(answer("a.0.1.1", "x"))

    assert (again.verdict, end_again.verdict) == (Verdict.DOUBLE, Verdict.DOUBLE)
    assert disk.syncs == syncs + 1  # the first was mended instead: a sync alone would prove nothing


async def test_a_file_behind_a_link_is_synced_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_pace, "QUICK_S", 10.0)
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "store.db").touch()
    (tmp_path / "store.db").symlink_to(tmp_path / "real" / "store.db")
    desk = Desk(tmp_path / "store.db")
    await desk.store.open()
    desk.store._routed()._pace._took_s = 0.0

    beginning = await begun(desk, "a")
    (end,) = await desk.moved(answer("a.0.1.1", "x"))
    await beginning
    await desk.store.aclose()

    assert end.outcome is Outcome.OK


async def run_without_hurry(desk: Desk, names: str) -> list[str]:
    """Whose ends were told, in that order."""
    told: list[str] = []
    for name in names:
        desk.store.start_advance(
            [begin(name), answer(f"{name}.0.1.1")],
            ONE,
            paid=(),
            settings=DEFAULT_SETTINGS,
            ahead=lambda _: None,
            on_committed=lambda _: None,
            on_end=lambda _, name=name: told.append(name),  # type: ignore[misc]  # mypy does not see the default
            is_hurried=False,
        )
        await turns()
    async with asyncio.timeout(5):
        while len(told) < len(names):  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.005)
    return told


async def test_whoever_is_in_no_hurry_waits_for_company(
    desk: Desk, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_syncing, "WAIT_S", 1.0)

    assert await run_without_hurry(desk, "abc") == ["a", "b", "c"]
    assert disk.syncs == 1


async def test_many_wait_no_longer(desk: Desk, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_syncing, "WAIT_S", 3600.0)
    monkeypatch.setattr(sqlite_syncing, "MANY", 3)

    assert await run_without_hurry(desk, "abc") == ["a", "b", "c"]
    assert disk.syncs == 1


async def test_closing_waits_for_the_disk(desk: Desk, disk: Disk) -> None:
    beginning = await begun(desk, "a")
    ending = desk.begun(answer("a.0.1.1"))
    await turns()
    await desk.store.aclose()

    assert disk.syncs
    assert beginning.done()
    assert ending.done()
