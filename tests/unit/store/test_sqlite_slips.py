"""A quick task is put down on a slip first: nobody who reads can tell, and neither a kill nor a double loses it."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.contract.store.routed_words import CHAIN, ONE, answer, begin, cancel, rerun, states
from tests.contract.store.words import NOW_MS, accept
from tests.unit.store.desks import Desk

from canoa.errors import StoreFull, WrongUse
from canoa.execution.outcome import Outcome
from canoa.execution.step_moves import Verdict
from canoa.store import sqlite_ahead, sqlite_batch, sqlite_link, sqlite_owed, sqlite_pace, sqlite_routed, sqlite_slips
from canoa.store.port import TaskFilter
from canoa.store.routed_port import DEFAULT_SETTINGS
from canoa.vocabulary import TaskId
from canoa.wire.ids import new_task_id

if TYPE_CHECKING:
    from pathlib import Path

    from canoa.store.routed_port import Move

A = TaskId("a")


@pytest.fixture(autouse=True)
def is_quick(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk, so the event loop writes; and nothing waits or is copied but for a reason."""
    monkeypatch.setattr(sqlite_pace, "QUICK_S", 10.0)
    monkeypatch.setattr(sqlite_pace, "LINGER_S", 0.0)
    monkeypatch.setattr(sqlite_slips, "COPY_AFTER_S", 3600.0)
    desk.store._routed()._pace._took_s = 0.0


async def ended(desk: Desk, name: str = "a", *, reply_to: str | None = None) -> None:
    beginning = await desk.waiting(begin(name, reply_to=reply_to))
    (end,) = await desk.moved(answer(f"{name}.0.1.1", "x"))
    assert end.outcome is Outcome.OK
    await beginning


def slips(path: Path) -> int:
    with closing(sqlite3.connect(path)) as other:
        return len(other.execute("SELECT 1 FROM slips").fetchall())


def in_table(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as other:
        return [task_id for (task_id,) in other.execute("SELECT id FROM tasks ORDER BY id")]


# --- What is put down --------------------------------------------------------------------------------------------


async def test_a_quick_task_is_one_row_until_it_is_copied(desk: Desk) -> None:
    await ended(desk)

    assert (slips(desk.path), in_table(desk.path)) == (1, [])


async def test_what_nobody_waits_for_is_given_more_time_to_end(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_pace, "UNHURRIED_S", 10.0)
    before = desk.store.writes.done
    desk.store.start_advance(
        [begin("a")],
        ONE,
        paid=(),
        settings=DEFAULT_SETTINGS,
        ahead=lambda _: None,
        on_committed=lambda _: None,
        on_end=lambda _: None,
        is_hurried=False,
    )
    await asyncio.sleep(0.05)
    await desk.moved(answer("a.0.1.1", "x"))

    assert (desk.store.writes.done, slips(desk.path)) == (before + 1, 1)


async def test_what_is_also_about_a_task_that_was_there_before_goes_into_the_tables(desk: Desk) -> None:
    await ended(desk)
    await desk.store.task(A)  # copied
    await desk.moved(begin("b"), answer("b.0.1.1"), answer("a.0.1.1"))

    assert (slips(desk.path), in_table(desk.path)) == (0, ["a", "b"])


async def test_a_task_that_is_still_open_stands_in_its_tables_at_once(desk: Desk) -> None:
    await desk.moved(begin("a", CHAIN))

    assert (slips(desk.path), in_table(desk.path)) == (0, ["a"])


async def test_slips_are_copied_after_a_while(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_slips, "COPY_AFTER_S", 0.01)
    await ended(desk)

    async with asyncio.timeout(10):
        while slips(desk.path):  # noqa: ASYNC110  # it is another thread's work
            await asyncio.sleep(0.01)
    assert in_table(desk.path) == ["a"]


async def test_so_many_slips_wait_and_no_more(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_slips, "MANY", 3)
    for name in ("a", "b", "c"):
        await ended(desk, name)

    async with asyncio.timeout(10):
        while slips(desk.path):  # noqa: ASYNC110  # it is another thread's work
            await asyncio.sleep(0.01)
    assert in_table(desk.path) == ["a", "b", "c"]


# --- Who reads, and who moves on ---------------------------------------------------------------------------------


async def test_whoever_reads_finds_it_in_its_tables(desk: Desk) -> None:
    await ended(desk)
    found = await desk.store.task(A)
    assert found is not None
    assert found.outcome is Outcome.OK

    await ended(desk, "b")
    assert [row.id for row in await desk.store.tasks(TaskFilter(), limit=10)] == ["b", "a"]

    await ended(desk, "c")
    assert states(await desk.store.steps(TaskId("c"))) == ["ok"]
    assert await desk.store.result(TaskId("c")) is not None


async def test_a_request_that_comes_again_hears_the_result_of_the_first(desk: Desk) -> None:
    await ended(desk)
    (again,) = await desk.moved(begin("a", reply_to="canoa.reply.me"))

    assert (again.verdict, desk.left) == (Verdict.DOUBLE, ["a.0.1.1"])
    assert [each.publication.key for each in again.owed] == ["canoa.reply.me"]


@pytest.mark.parametrize(("late", "verdict"), [(answer("a.0.1.1"), Verdict.DOUBLE), (cancel("a"), Verdict.LATE)])
async def test_what_comes_late_changes_nothing(desk: Desk, late: Move, verdict: Verdict) -> None:
    await ended(desk)
    (moved,) = await desk.moved(late)

    assert moved.verdict is verdict
    found = await desk.store.task(A)
    assert found is not None
    assert found.outcome is Outcome.OK


async def test_a_task_on_a_slip_may_run_again(desk: Desk) -> None:
    beginning = await desk.waiting(begin("a"))
    await desk.moved(cancel("a"))
    await beginning
    assert slips(desk.path) == 1

    (again,) = await desk.moved(rerun("a"))

    assert again.verdict is Verdict.TAKEN
    assert states(await desk.store.steps(A)) == ["sent"]


async def test_moves_of_others_do_not_wait_for_slips(desk: Desk) -> None:
    await ended(desk)
    await ended(desk, "b")

    assert slips(desk.path) == 2


# --- What is owed ------------------------------------------------------------------------------------------------


async def test_what_was_paid_before_it_is_copied_is_never_owed(desk: Desk) -> None:
    await ended(desk)
    await desk.moved(paid=["a.0.final.0"])  # with a transaction of the tables, which copies first
    assert (slips(desk.path), desk.count("owed")) == (0, 0)

    await ended(desk, "b")
    beginning = await desk.waiting(begin("c"))
    paying = await desk.waiting(paid=["b.0.final.0"])  # with the next slip
    await desk.moved(answer("c.0.1.1", "x"))
    await asyncio.gather(beginning, paying)
    await desk.moved(paid=["c.0.final.0"])

    assert await desk.store.take_owed(now_ms=NOW_MS + 60_000, limit=10, for_ms=1_000) == []


async def test_what_a_killed_manager_owes_is_found_on_its_slips(desk: Desk, other: Desk) -> None:
    await ended(desk, reply_to="canoa.reply.me")

    left = await other.store.take_owed(now_ms=NOW_MS + 60_000, limit=10, for_ms=1_000)

    assert {each.publication.key for each in left} == {"canoa.reply.me", "sapparchi.task.final.saida"}


# --- Kills, and other programs -----------------------------------------------------------------------------------


async def test_a_killed_manager_leaves_slips_to_whoever_opens_the_store_next(desk: Desk, tmp_path: Path) -> None:
    await ended(desk)
    for suffix in ("", "-wal"):
        shutil.copy(f"{desk.path}{suffix}", f"{tmp_path / 'left.db'}{suffix}")

    following = Desk(tmp_path / "left.db")
    await following.store.open()
    found = await following.store.task(A)
    await following.store.aclose()

    assert found is not None
    assert found.outcome is Outcome.OK
    assert slips(tmp_path / "left.db") == 0


async def test_a_store_that_is_closed_has_no_slips(desk: Desk) -> None:
    await ended(desk)
    await desk.store.aclose()

    assert (slips(desk.path), in_table(desk.path)) == (0, ["a"])
    await desk.store.open()


async def test_another_program_that_moves_the_same_task_finds_it_ended(desk: Desk, other: Desk) -> None:
    await ended(desk)
    again, late = await other.moved(begin("a", reply_to="canoa.reply.me"), answer("a.0.1.1", "y"))

    assert (again.verdict, late.verdict) == (Verdict.DOUBLE, Verdict.DOUBLE)
    result = await desk.store.result(A)
    assert result is not None
    assert result.body == b'"x"'
    assert slips(desk.path) == 0


async def test_a_task_that_another_program_was_quicker_with_is_not_put_down(desk: Desk, other: Desk) -> None:
    beginning = await desk.waiting(begin("a"))
    await other.moved(begin("a"))
    await other.moved(cancel("a"))
    (end,) = await desk.moved(answer("a.0.1.1", "x"))
    await beginning

    assert end.verdict is not Verdict.TAKEN
    found = await desk.store.task(A)
    assert found is not None
    assert found.outcome is Outcome.CANCELLED


async def test_a_task_that_this_program_keeps_by_another_way_is_not_put_down(desk: Desk) -> None:
    """It is younger than this program, so it is taken for new."""
    task_id = new_task_id()
    await desk.store.apply([accept(task_id)])
    again, late = await desk.moved(begin(task_id), answer(f"{task_id}.0.1.1", "x"))

    assert (again.verdict, late.verdict) == (Verdict.DOUBLE, Verdict.UNKNOWN)
    assert slips(desk.path) == 0


async def met(desk: Desk, other: Desk) -> None:
    """Each knows that the other has written, and the other then puts a slip down, and is killed."""
    for each in (other, desk, other):
        await each.moved()
    other.store._routed()._pace._took_s = 0.0
    await ended(other, "x")
    assert slips(desk.path) == 1


async def test_a_killed_program_s_slip_is_found_by_one_that_only_looked_after_its_own(
    desk: Desk, other: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_ahead, "LASTING_S", 3600.0)
    await desk.moved(begin("slow"))
    await met(desk, other)
    desk.store._routed()._look()  # writes what has lasted: moves of nobody
    async with asyncio.timeout(10):
        while slips(desk.path):  # noqa: ASYNC110  # it is another thread's work
            await asyncio.sleep(0.01)

    again, late = await desk.moved(begin("x"), answer("x.0.1.1", "y"))

    assert (again.verdict, late.verdict) == (Verdict.DOUBLE, Verdict.DOUBLE)
    await said_x(desk)


async def test_a_killed_program_s_slip_is_found_after_moves_that_could_not_be(desk: Desk, other: Desk) -> None:
    """What they copied was rolled back with them."""
    await met(desk, other)
    with pytest.raises(WrongUse):
        await desk.moved(begin("bad", at_ms=2**70))
    assert slips(desk.path) == 1

    again, late = await desk.moved(begin("x"), answer("x.0.1.1", "y"))

    assert (again.verdict, late.verdict) == (Verdict.DOUBLE, Verdict.DOUBLE)
    await said_x(desk)


async def said_x(desk: Desk) -> None:
    result = await desk.store.result(TaskId("x"))
    assert result is not None
    assert result.body == b'"x"'


# --- What cannot be copied ---------------------------------------------------------------------------------------


def _is_full(*_: object) -> None:
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    raise full


async def test_a_full_disk_keeps_slips_and_says_so_to_whoever_moves_their_tasks(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ended(desk)
    with monkeypatch.context() as full:
        full.setattr(sqlite_routed, "write", _is_full)
        with pytest.raises(StoreFull):
            await desk.moved(begin("a"))
        assert await desk.store.task(A) is None  # tables are read as they are
    assert slips(desk.path) == 1

    (again,) = await desk.moved(begin("a"))

    assert again.verdict is Verdict.DOUBLE


async def test_a_store_opens_also_where_slips_have_no_room(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ended(desk)
    for suffix in ("", "-wal"):
        shutil.copy(f"{desk.path}{suffix}", f"{tmp_path / 'left.db'}{suffix}")
    following = Desk(tmp_path / "left.db")
    with monkeypatch.context() as full:
        full.setattr(sqlite_routed, "write", _is_full)
        await following.store.open()
    assert slips(following.path) == 1

    (again,) = await following.moved(begin("a"))
    await following.store.aclose()

    assert (again.verdict, following.left) == (Verdict.DOUBLE, ["a.0.1.1"])  # which ran in vain


async def test_slips_fit_where_nothing_else_does(desk: Desk) -> None:
    for number in range(8):
        await ended(desk, f"t{number}")

    def filled(own: sqlite3.Connection) -> None:
        (pages,) = own.execute("PRAGMA page_count").fetchone()
        own.execute(f"PRAGMA max_page_count={pages}")

    await desk.store._writer.read(filled)

    assert len(await desk.store.tasks(TaskFilter(), limit=10)) == 8
    assert slips(desk.path) == 0


async def test_a_store_closes_also_while_another_program_writes(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_link, "_PATIENT", "PRAGMA busy_timeout=50")
    await ended(desk)
    with closing(sqlite3.connect(desk.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        await desk.store.aclose()

    assert slips(desk.path) == 1
    await desk.store.open()
    assert in_table(desk.path) == ["a"]


@pytest.mark.parametrize(
    "content",
    [
        b"\xc1",
        msgspec.msgpack.encode(([], [["a", "b"]], [], [], [])),
        msgspec.msgpack.encode(([], [], [], [[1, 2]], [])),
        msgspec.msgpack.encode((1, 2)),
    ],
    ids=["no msgpack", "too few values", "no numbers", "no slip"],
)
async def test_a_slip_that_no_table_takes_is_not_in_the_way_of_others_and_not_gone(
    desk: Desk, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await ended(desk)
    with closing(sqlite3.connect(desk.path, isolation_level=None)) as hand:
        hand.execute("INSERT INTO slips (content) VALUES (?)", (content,))  # which no program does
    await ended(desk, "b")

    assert [row.id for row in await desk.store.tasks(TaskFilter(), limit=10)] == ["b", "a"]
    assert "slip_set_aside" in caplog.text
    assert desk.rows("SELECT content FROM slips") == [(content,)]


def test_a_slip_has_the_columns_that_its_tables_have() -> None:
    """Whoever changes these must copy the slips of the version before first, in a migration."""
    assert len(sqlite_batch.TASK) == 17
    assert len(sqlite_routed._STEP) == 13
    assert len(sqlite_owed._OWED) == 4


async def test_a_number_that_no_column_takes_is_not_put_down(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copying would be too late for finding out."""
    rows_of = sqlite_routed.rows_of

    def with_a_large_number(*args: object, **kwargs: object) -> sqlite_routed.RoutedRows:
        rows = rows_of(*args, **kwargs)  # type: ignore[arg-type]
        return rows._replace(new_tasks=[(*row[:3], 2**63, *row[4:]) for row in rows.new_tasks])

    beginning = await desk.waiting(begin("a"))
    with monkeypatch.context() as large:
        large.setattr(sqlite_routed, "rows_of", with_a_large_number)
        ending = desk.begun(answer("a.0.1.1", "x"))
        await asyncio.gather(beginning, ending, return_exceptions=True)

    assert slips(desk.path) == 0
