"""Moves are decided before they are on disk: what leaves at once, what waits, and what happens when it was not so."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.contract.store.routed_words import (
    CHAIN,
    FETCH,
    ONE,
    Nodes,
    answer,
    begin,
    cancel,
    fan,
    rerun,
    sent_to,
    states,
)
from tests.contract.store.words import NOW_MS, accept
from tests.unit.store.desks import Desk, turns

from canoa.errors import StoreFull, WrongUse
from canoa.execution.outcome import Outcome
from canoa.execution.plan import Plan, Step
from canoa.execution.step_moves import Verdict
from canoa.store import sqlite_ahead, sqlite_pace, sqlite_routed
from canoa.store.routed_port import DEFAULT_SETTINGS
from canoa.store.sqlite_link import LOG_PAGES, SqliteLink
from canoa.vocabulary import TaskId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from canoa.store.routed_port import Moved, Owed
    from canoa.store.sqlite_flight import Flight

A = TaskId("a")


@pytest.fixture
def held(desk: Desk) -> Iterator[sqlite3.Connection]:
    """Another program writes: until it ends its transaction, nothing gets on disk."""
    with closing(sqlite3.connect(desk.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


# --- What leaves, and what waits --------------------------------------------------------------------------------


async def test_attempts_leave_before_they_are_on_disk_and_the_end_does_not(
    desk: Desk, held: sqlite3.Connection
) -> None:
    first = desk.begun(begin("a", CHAIN))
    await turns()
    rest = [desk.begun(answer(f"a.{step}.1.1", step)) for step in range(3)]
    await turns()

    assert desk.left == ["a.0.1.1", "a.1.1.1", "a.2.1.1"]
    assert not first.done()
    assert not any(each.done() for each in rest)

    held.execute("COMMIT")
    ends = [await each for each in (first, *rest)]

    assert [[each.key for each in end.sent] for (end,) in ends] == [["a.0.1.1"], ["a.1.1.1"], ["a.2.1.1"], []]
    assert [[each.key for each in end.owed] for (end,) in ends] == [[], [], [], ["a.0.final.0"]]
    assert ends[-1][0].outcome is Outcome.OK
    assert states(await desk.store.steps(A)) == ["ok", "ok", "ok"]


async def test_an_action_that_ends_at_once_is_written_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_pace, "LINGER_S", 0.5)  # on a busy machine it is not at once
    before = desk.store.writes.done
    first = desk.begun(begin("a"))
    await turns()
    (end,) = await desk.moved(answer("a.0.1.1", "x"))

    assert (await first)[0].verdict is Verdict.TAKEN
    assert end.outcome is Outcome.OK
    assert desk.store.writes.done == before + 1


async def test_what_nobody_waits_for_is_on_disk_soon(desk: Desk) -> None:
    (moved,) = await desk.moved(begin("a"))

    assert [each.key for each in moved.sent] == ["a.0.1.1"]
    assert desk.count("tasks") == 1


async def test_a_message_that_the_broker_has_before_the_disk_is_not_owed(desk: Desk) -> None:
    first = desk.begun(begin("a"))
    await turns()
    await desk.moved(paid=["a.0.1.1"])
    await first

    assert desk.count("owed") == 0


async def test_a_message_that_the_broker_gets_while_it_is_written_down_is_not_owed_for_long(
    desk: Desk, held: sqlite3.Connection
) -> None:
    first = desk.begun(begin("a"))
    await asyncio.sleep(5 * sqlite_pace.LINGER_S)  # its rows are on their way
    paying = asyncio.create_task(desk.moved(paid=["a.0.1.1"]))
    await turns()
    held.execute("COMMIT")
    await asyncio.gather(first, paying)

    assert await desk.store.take_owed(now_ms=NOW_MS + 60_000, limit=10, for_ms=1_000) == []


async def test_a_message_that_the_broker_never_got_is_found_by_whoever_looks_for_it(desk: Desk) -> None:
    await desk.moved(begin("a"))

    left = await desk.store.take_owed(now_ms=NOW_MS + 60_000, limit=10, for_ms=1_000)

    assert [each.key for each in left] == ["a.0.1.1"]


async def test_looking_for_what_others_left_holds_up_no_moves(desk: Desk, held: sqlite3.Connection) -> None:
    """Managers look every few seconds, and mostly find nothing."""
    first = desk.begun(begin("a"))
    await turns()

    assert await desk.store.take_owed(now_ms=NOW_MS, limit=5, for_ms=1000) == []
    second = desk.begun(begin("b"))
    await turns()
    assert desk.left == ["a.0.1.1", "b.0.1.1"]  # decided, while nothing gets on disk

    held.execute("ROLLBACK")
    await asyncio.gather(first, second)


async def test_a_request_that_comes_again_sends_nothing_again(desk: Desk) -> None:
    await desk.moved(begin("a"))
    await desk.moved(answer("a.0.1.1"))
    other = Desk(desk.path)  # remembers nothing
    await other.store.open()
    (again,) = await other.moved(begin("a", reply_to="canoa.reply.me"))
    await other.store.aclose()

    assert (again.verdict, other.left) == (Verdict.DOUBLE, [])
    assert [each.publication.key for each in again.owed] == ["canoa.reply.me"]


async def test_a_crowd_is_written_in_few_transactions(desk: Desk) -> None:
    before = desk.store.writes.done
    width = 10
    tasks = [f"t{number}" for number in range(100)]
    waiting = [desk.begun(begin(each, fan(width))) for each in tasks]
    for answered in ([0], range(1, width + 1), [width + 1]):
        for step in answered:
            await turns()
            waiting += [desk.begun(answer(f"{each}.{step}.1.1")) for each in tasks]
    ends = [moved for done in await asyncio.gather(*waiting) for moved in done]

    assert sum(each.outcome is Outcome.OK for each in ends) == len(tasks)
    assert desk.store.writes.done - before < len(ends) / 20
    assert desk.count("steps") == len(tasks) * (width + 2)


async def test_the_last_of_a_crowd_wait_for_nobody(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    await desk.moved(begin("before"), answer("before.0.1.1", "x"))  # from now on a crowd would wait for as long
    monkeypatch.setattr(sqlite_pace, "CROWD_EACH_S", 60.0)
    monkeypatch.setattr(sqlite_pace, "CROWD_EVERY_S", 60.0)
    names = [f"task-{number}" for number in range(sqlite_pace.CROWD)]
    begun = desk.begun(*map(begin, names))
    await turns()
    *most, last = [answer(f"{name}.0.1.1", "x") for name in names]
    first = desk.begun(*most)
    await asyncio.sleep(5 * sqlite_pace.LINGER_S)
    assert not first.done()

    (end,) = await asyncio.wait_for(desk.moved(last), 10)

    assert end.outcome is Outcome.OK
    assert begun.done()
    assert first.done()


async def test_closing_writes_what_was_decided(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "canoa.db")
    await desk.store.open()
    first = desk.begun(begin("a"))
    await turns()
    await desk.store.aclose()

    assert (await first)[0].verdict is Verdict.TAKEN
    assert desk.count("tasks") == 1


# --- When it is not as it was thought ---------------------------------------------------------------------------


async def test_another_program_that_was_quicker_is_heard_first(desk: Desk, held: sqlite3.Connection) -> None:
    """What was decided meanwhile is decided again, from what it wrote; and what that sends is out once."""
    before = ONE.out.total()
    waiting = [desk.begun(begin("a", CHAIN))]
    await turns()
    held.execute("CREATE TABLE anything (x)")
    waiting.append(desk.begun(answer("a.0.1.1", "x")))
    await turns()
    held.execute("COMMIT")
    (first,), (second,) = [await each for each in waiting]

    assert (first.verdict, second.verdict) == (Verdict.TAKEN, Verdict.TAKEN)
    assert [each.key for each in (*first.sent, *second.sent)] == desk.left == ["a.0.1.1", "a.1.1.1"]
    assert (first.owed, second.owed) == ((), ())  # they have left: not once more
    assert states(await desk.store.steps(A)) == ["ok", "sent", "blocked"]
    assert ONE.out.total() == before + 2


async def test_what_is_decided_again_stays_with_the_node_that_has_it(desk: Desk, held: sqlite3.Connection) -> None:
    """Another one would run it as well."""
    desk.route = Nodes("gw-1", "gw-2", "gw-3")
    waiting = desk.begun(begin("a"), begin("b"))
    await turns()
    held.execute("CREATE TABLE anything (x)")
    held.execute("COMMIT")
    told = await waiting

    assert [each.key for moved in told for each in moved.sent] == desk.left == ["a.0.1.1", "b.0.1.1"]
    assert [moved.owed for moved in told] == [(), ()]
    assert [sent_to(each) for moved in told for each in moved.sent] == ["gw-2", "gw-3"]
    assert desk.route.out == {"gw-2": 1, "gw-3": 1}


async def test_a_task_that_another_program_has_begun_moves_none_of_its_neighbours(
    desk: Desk, held: sqlite3.Connection
) -> None:
    desk.route = Nodes("gw-1", "gw-2", "gw-3")
    names = [f"t{number}" for number in range(10)]
    waiting = desk.begun(*map(begin, names))
    await turns()
    held.execute("INSERT INTO tasks (id, action, standing, submitted_ms, reply_to, run, attempts) VALUES "
                 "('t0', 'x', 'waiting', 0, '', 0, 0)")  # fmt: skip
    held.execute("COMMIT")
    first, *rest = await waiting

    assert first.verdict is Verdict.DOUBLE
    assert [moved.owed for moved in rest] == [()] * 9  # all of them have left: not once more
    assert desk.route.out.total() == 9


async def test_a_node_has_nothing_to_do_for_a_task_that_another_program_has_cancelled(desk: Desk) -> None:
    desk.route = Nodes("gw-1", "gw-2")
    await desk.moved(begin("a", CHAIN))
    out = desk.route.out.copy()
    with closing(sqlite3.connect(desk.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = desk.begun(answer("a.0.1.1", "x"))
        await turns()
        assert desk.route.out.total() == out.total() + 1
        other.execute("UPDATE tasks SET standing = 'cancelled'")
        other.execute("COMMIT")
    (told,) = await waiting

    assert told.verdict is Verdict.LATE
    assert desk.route.out == out


async def test_a_task_that_another_program_has_begun_meanwhile_is_its_own(
    desk: Desk, held: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its row is the only sign of it."""
    monkeypatch.setattr(sqlite_routed, "version_of", lambda _: desk.store._notes.data_version)
    waiting = desk.begun(begin("a"), begin("b"))
    await turns()
    held.execute("INSERT INTO tasks (id, action, standing, submitted_ms, reply_to, run, attempts) VALUES "
                 "('a', 'x', 'waiting', 0, '', 0, 0)")  # fmt: skip
    held.execute("COMMIT")

    assert [each.verdict for each in await waiting] == [Verdict.DOUBLE, Verdict.TAKEN]


async def test_a_move_that_cannot_be_takes_no_other_along(desk: Desk) -> None:
    first, then = (Step(name=name, action=FETCH, after=after) for name, after in (("b", ("c",)), ("c", ())))
    good = desk.begun(begin("a"))
    await turns()
    with pytest.raises(WrongUse):
        await desk.moved(begin("x", Plan(name="bad", steps=(first, then))))
    (told,) = await good

    assert (told.verdict, told.owed, [each.key for each in told.sent]) == (Verdict.TAKEN, (), ["a.0.1.1"])
    await asyncio.sleep(5 * sqlite_pace.LINGER_S)  # nothing of it comes later
    assert desk.count("tasks") == 1


async def test_a_value_that_no_row_can_keep_is_only_its_own_move_s_trouble(desk: Desk) -> None:
    waiting = [desk.begun(begin("a")), desk.begun(begin("b", at_ms=2**70)), desk.begun(begin("c"))]
    a, b, c = await asyncio.gather(*waiting, return_exceptions=True)

    assert isinstance(b, WrongUse)
    assert isinstance(a, list)
    assert isinstance(c, list)
    assert desk.count("tasks") == 2


async def test_a_full_disk_lets_nothing_leave_again_and_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    written, before = sqlite_routed.write, ONE.out.total()

    def full(_: sqlite3.Connection, rows: sqlite_routed.RoutedRows) -> None:
        if any(rows):
            raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(sqlite_routed, "write", full)
    monkeypatch.setattr("canoa.store.sqlite_link.translated", lambda *_: StoreFull("no room"))
    for _ in range(3):
        with pytest.raises(StoreFull):
            await desk.moved(begin("a"))
        (unknown,) = await desk.moved(answer("a.0.1.1"))  # it has run in vain, and nothing need be written about it
        assert unknown.verdict is Verdict.UNKNOWN
    assert desk.left == ["a.0.1.1"]  # the first time: nobody could know

    monkeypatch.setattr(sqlite_routed, "write", written)
    (moved,) = await desk.moved(begin("a"))
    await desk.moved(begin("b"))

    assert [each.key for each in moved.owed] == ["a.0.1.1"]
    assert desk.left == ["a.0.1.1", "b.0.1.1"]
    assert ONE.out.total() == before + 2


async def test_whoever_else_changes_tasks_finds_them_as_they_were_decided(desk: Desk) -> None:
    first = desk.begun(begin("a"))
    await turns()
    (again,) = await desk.store.apply([accept("a")])

    assert first.done()
    assert not again.is_new  # type: ignore[union-attr]


async def test_a_rerun_finds_the_end_on_disk(desk: Desk) -> None:
    first = desk.begun(begin("a"))
    await turns()
    ended = desk.begun(answer("a.0.1.1", None, outcome=Outcome.FAILED, error="no"))
    await turns()
    (again,) = await desk.moved(rerun("a"))

    assert (await first)[0].verdict is Verdict.TAKEN
    assert (await ended)[0].outcome is Outcome.FAILED
    assert (again.verdict, [each.key for each in again.owed]) == (Verdict.TAKEN, ["a.0.1.2"])


async def test_what_was_cancelled_after_its_rerun_is_cancelled(desk: Desk) -> None:
    await desk.moved(begin("a"), answer("a.0.1.1", None, outcome=Outcome.FAILED, error="no"))
    again, ended = desk.begun(rerun("a")), desk.begun(cancel("a", after_ms=2000))

    assert [each.verdict for each in (*await again, *await ended)] == [Verdict.TAKEN, Verdict.TAKEN]
    assert states(await desk.store.steps(A)) == ["cancelled"]


async def test_moves_of_another_route_wait_for_those_before(desk: Desk) -> None:
    """So no flight writes what a later one has done to its tasks."""
    first = desk.begun(begin("a", CHAIN))
    await turns()
    (second,) = await desk.store.advance([answer("a.0.1.1", "x")], Nodes("gw-8"))

    assert (await first)[0].verdict is Verdict.TAKEN
    assert [each.key for each in second.owed] == ["a.1.1.1"]
    assert desk.store.writes.done == 2


async def test_two_programs_that_take_turns_send_nothing_twice(desk: Desk) -> None:
    other = Desk(desk.path)
    await other.store.open()
    owed: list[Owed] = []
    for number in range(20):
        for each, name in ((desk, f"d{number}"), (other, f"o{number}")):
            (moved,) = await each.moved(begin(name))
            owed += moved.owed
    await other.store.aclose()

    assert owed == []
    assert len(desk.left) == len(other.left) == len({*desk.left, *other.left}) / 2 == 20


async def test_what_cannot_be_decided_while_others_are_written_spoils_neither(
    desk: Desk, held: sqlite3.Connection
) -> None:
    waiting = [desk.begun(begin("a", CHAIN))]
    await asyncio.sleep(5 * sqlite_pace.LINGER_S)  # it is on its way to disk
    waiting.append(desk.begun(answer("a.0.1.1", "x")))
    await turns()
    bad = desk.begun(begin("x", Plan(name="bad", steps=(Step(name="b", action=FETCH, after=("b",)),))))
    await turns()
    waiting.append(desk.begun(answer("a.1.1.1", "y")))
    await turns()
    held.execute("COMMIT")

    assert [(await each)[0].verdict for each in waiting] == [Verdict.TAKEN] * 3
    with pytest.raises(WrongUse):
        await bad
    assert states(await desk.store.steps(A)) == ["ok", "ok", "sent"]


async def test_what_cannot_be_decided_while_another_program_is_quicker_is_decided_in_order_and_holds_up_nobody(
    desk: Desk, held: sqlite3.Connection
) -> None:
    begun = desk.begun(begin("a", CHAIN))
    await asyncio.sleep(5 * sqlite_pace.LINGER_S)  # it is on its way to disk
    answered = desk.begun(answer("a.0.1.1", "x"))
    await turns()
    bad = desk.begun(begin("x", Plan(name="bad", steps=(Step(name="b", action=FETCH, after=("b",)),))))
    await turns()
    held.execute("CREATE TABLE anything (x)")
    held.execute("COMMIT")

    assert [(await each)[0].verdict for each in (begun, answered)] == [Verdict.TAKEN] * 2
    with pytest.raises(WrongUse):
        await bad
    (later,) = await desk.moved(begin("later"))
    assert later.verdict is Verdict.TAKEN


@pytest.fixture
async def behind(
    desk: Desk, held: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> tuple[asyncio.Task[list[Moved]], asyncio.Task[list[Moved]]]:
    """One flight in the thread, and one behind it that will be written on the event loop."""
    monkeypatch.setattr(sqlite_pace, "QUICK_S", 10.0)
    monkeypatch.setattr(sqlite_pace, "LINGER_S", 0.0)
    desk.store._routed()._pace._took_s = 1000.0
    first = desk.begun(begin("a"))
    await turns()
    desk.store._routed()._pace._took_s = 0.0
    second = desk.begun(begin("b"), answer("b.0.1.1", "x"))
    await turns()
    return first, second


async def test_ends_are_told_in_the_order_of_the_moves(
    behind: tuple[asyncio.Task[list[Moved]], asyncio.Task[list[Moved]]], held: sqlite3.Connection
) -> None:
    told: list[str] = []
    for name, task in zip(("first", "second"), behind, strict=True):
        task.add_done_callback(lambda _, name=name: told.append(name))  # type: ignore[misc]
    held.execute("COMMIT")
    await asyncio.gather(*behind)
    await turns()

    assert told == ["first", "second"]


async def test_a_flight_that_fails_keeps_nobody_of_the_one_before_from_hearing(
    desk: Desk,
    behind: tuple[asyncio.Task[list[Moved]], asyncio.Task[list[Moved]]],
    held: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ahead, first = desk.store._routed(), behind[0]
    settle = ahead._settle

    def fail(flight: Flight, *, has_rows: bool) -> None:
        settle(flight, has_rows=has_rows)
        if "b" in flight.ledger.new_tasks:
            raise RuntimeError("a bug")

    monkeypatch.setattr(ahead, "_settle", fail)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    held.execute("COMMIT")

    assert (await asyncio.wait_for(first, 5))[0].verdict is Verdict.TAKEN
    await behind[1]


async def test_whoever_fails_over_an_answer_holds_up_nobody(desk: Desk) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("a bug")

    desk.store.start_advance(
        [begin("a")],
        ONE,
        paid=[],
        settings=DEFAULT_SETTINGS,
        ahead=fail,
        on_committed=fail,
        on_end=fail,
        is_hurried=True,
    )
    (moved,) = await desk.moved(begin("b"))

    assert moved.verdict is Verdict.TAKEN
    assert desk.count("tasks") == 2


# --- On the event loop, or in the thread ------------------------------------------------------------------------


async def ended(desk: Desk, name: str, output: str = "x") -> None:
    beginning = desk.begun(begin(name))
    await turns()
    await desk.moved(answer(f"{name}.0.1.1", output))
    await beginning


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which writes were done on the event loop."""
    done: list[str] = []
    real = SqliteLink.write_here

    def counted(self: SqliteLink, work: Callable[[sqlite3.Connection], None]) -> None:
        real(self, work)
        done.append("here")

    monkeypatch.setattr(SqliteLink, "write_here", counted)
    return done


async def test_a_few_moves_are_written_on_the_loop_once_the_disk_has_proven_quick(
    desk: Desk, here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_pace, "QUICK_S", 10.0)  # this machine's disk may be anything
    monkeypatch.setattr(sqlite_pace, "LINGER_S", 0.5)  # nor may its clock
    monkeypatch.setattr(sqlite_pace, "HERE", 3)
    desk.store._routed()._pace._took_s = 1.0
    for number in range(5):
        await ended(desk, f"t{number}")
    assert len(here) == 4  # the fourth went through the thread

    await ended(desk, "large", "x" * sqlite_pace.FEW_BYTES)
    assert len(here) == 4
    assert desk.count("tasks") == 6


async def test_a_slow_disk_does_not_hold_up_the_loop(desk: Desk, here: list[str]) -> None:
    desk.store._routed()._pace._took_s = 1.0
    await ended(desk, "a")

    assert here == []


async def test_another_program_that_writes_does_not_hold_up_the_loop(
    desk: Desk, held: sqlite3.Connection, here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_pace, "QUICK_S", 10.0)
    desk.store._routed()._pace._took_s = 0.0
    waiting = desk.begun(begin("a"), answer("a.0.1.1"))
    began_s = asyncio.get_running_loop().time()
    await asyncio.sleep(0.05)
    assert asyncio.get_running_loop().time() - began_s < 5  # and not the ten that a write waits in the thread

    held.execute("COMMIT")
    assert [each.verdict for each in await waiting] == [Verdict.TAKEN, Verdict.TAKEN]
    assert here == []


async def test_a_log_that_was_made_longer_changes_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_ahead, "GROW_AFTER", 0)
    await ended(desk, "a")
    await ended(desk, "b")  # behind it

    assert (desk.path.parent / "canoa.db-wal").stat().st_size > LOG_PAGES * 4096
    assert (desk.count("tasks"), desk.store.writes.done >= 2) == (2, True)
    assert await desk.store._writer.read(lambda own: own.execute("PRAGMA synchronous").fetchone()) == (2,)  # full
