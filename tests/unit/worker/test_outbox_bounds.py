"""A node's outbox: never over its bound, says what it drops, and has everything else again after a kill."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from canoa.broker.port import HeaderValue, Message
from canoa.errors import SettingError
from canoa.vocabulary import Drop
from canoa.worker import outbox_file
from canoa.worker.outbox import ROW_BYTES, Dropped, Entry, Gone, Kept, Outbox, OutboxLimits
from canoa.worker.outbox_file import OutboxUnusable, look

if TYPE_CHECKING:
    from pathlib import Path

URN = "urn:sapparchi:Action:shop.double"


def answer(request_id: str, *, size: int = 10, attempt: str = "", action: str = URN) -> Entry:
    headers: dict[str, HeaderValue] = {"canoa-status": "ok", "canoa-ended": 1700000000000, "canoa-no-retry": True}
    message = Message(body=b"x" * size, content_type="application/json", headers=headers, message_id=request_id)
    return Entry(request_id=request_id, message=message, attempt=attempt, action=action)


def kept(outbox: Outbox, entry: Entry) -> Kept:
    with outbox.group():
        outcome = outbox.put(entry)
    assert isinstance(outcome, Kept)
    return outcome


def ids(outbox: Outbox) -> list[str]:
    return [each.entry.request_id for each in outbox.waiting()]


# --- Keeping and sending --------------------------------------------------------------------------------


def test_what_is_kept_comes_back_whole_and_oldest_first_also_after_a_reopening(tmp_path: Path) -> None:
    entries = [answer("a", attempt="t.0.1"), answer("b", size=0), answer("c", size=5000)]
    with closing(Outbox.open(tmp_path / "sub" / "box.db")) as outbox:
        for entry in entries:
            kept(outbox, entry)

    with closing(Outbox.open(tmp_path / "sub" / "box.db")) as outbox:
        found = [each.entry for each in outbox.waiting()]

        assert [(e.request_id, e.attempt, e.action) for e in found] == [
            (e.request_id, e.attempt, e.action) for e in entries
        ]
        assert [each.message.body for each in found] == [each.message.body for each in entries]
        assert found[0].message.headers == entries[0].message.headers
        assert outbox.stats.messages == 3


def test_what_is_sent_waits_no_longer_and_is_still_known(tmp_path: Path) -> None:
    with closing(Outbox.open(tmp_path / "box.db")) as outbox:
        first = kept(outbox, answer("a", attempt="t.0.1"))
        kept(outbox, answer("b"))
        with outbox.group():
            outbox.sent(first.id)
            outbox.sent(first.id)  # twice does no harm

        assert ids(outbox) == ["b"]
        assert outbox.stats.messages == 1
        assert outbox.known() == [Gone("a", "t.0.1"), Gone("b", "")]
        found = outbox.find("a")
        assert found is not None
        assert found.message.body == b"x" * 10


def test_what_was_sent_is_forgotten_after_a_while(tmp_path: Path) -> None:
    now_ms = 1_000_000
    limits = OutboxLimits(remember_s=60)
    with closing(Outbox.open(tmp_path / "box.db", limits, now=lambda: now_ms)) as outbox:
        first = kept(outbox, answer("a"))
        kept(outbox, answer("b"))
        with outbox.group():
            outbox.sent(first.id)
        now_ms += 59_000
        assert outbox.forget() == []
        now_ms += 1_000

        assert outbox.forget() == [Gone("a", "")]
        assert ids(outbox) == ["b"]
        assert outbox.stats.dropped == 0


def test_the_first_answer_to_a_request_stands(tmp_path: Path) -> None:
    with closing(Outbox.open(tmp_path / "box.db")) as outbox:
        first = kept(outbox, answer("a", size=1))

        assert kept(outbox, answer("a", size=2)) == first
        assert [len(each.entry.message.body) for each in outbox.waiting()] == [1]


def test_what_was_sent_and_is_asked_for_once_more_waits_again(tmp_path: Path) -> None:
    with closing(Outbox.open(tmp_path / "box.db")) as outbox:
        first = kept(outbox, answer("a", size=1))
        held = outbox.stats.bytes
        with outbox.group():
            outbox.sent(first.id)

        assert kept(outbox, answer("a", size=2)) == first
        assert [len(each.entry.message.body) for each in outbox.waiting()] == [1]
        assert (outbox.stats.messages, outbox.stats.bytes) == (1, held)


def test_a_look_takes_so_many_bytes_and_one_at_least_and_leaves_out_what_is_on_its_way(tmp_path: Path) -> None:
    with closing(Outbox.open(tmp_path / "box.db")) as outbox:
        rows = [kept(outbox, answer(name, size=1000)).id for name in "abcd"]

        assert [each.entry.request_id for each in outbox.waiting(max_bytes=1)] == ["a"]
        assert [each.entry.request_id for each in outbox.waiting(max_bytes=3000)] == ["a", "b"]
        assert [each.entry.request_id for each in outbox.waiting(limit=2, but=frozenset(rows[:1]))] == ["b", "c"]


# --- Bounds ---------------------------------------------------------------------------------------------


def test_over_its_bound_the_oldest_gives_way_and_is_counted_also_over_reopenings(tmp_path: Path) -> None:
    with closing(Outbox.open(tmp_path / "box.db", OutboxLimits(max_messages=2))) as outbox:
        for name in "ab":
            kept(outbox, answer(name, attempt=f"of-{name}"))

        assert kept(outbox, answer("c")).dropped == (Gone("a", "of-a"),)
        assert ids(outbox) == ["b", "c"]
    with closing(Outbox.open(tmp_path / "box.db", OutboxLimits(max_messages=2))) as outbox:
        assert outbox.stats.dropped == 1


@pytest.mark.parametrize(("drop", "is_refused"), [(Drop.NEWEST, False), (Drop.REFUSE, True)])
def test_the_one_that_comes_may_give_way_instead(tmp_path: Path, drop: Drop, is_refused: bool) -> None:
    with closing(Outbox.open(tmp_path / "box.db", OutboxLimits(max_messages=2, drop=drop))) as outbox:
        kept(outbox, answer("a"))
        kept(outbox, answer("b"))

        assert outbox.put(answer("c")) == Dropped(why="the outbox is full", is_refused=is_refused)
        assert ids(outbox) == ["a", "b"]
        assert outbox.stats.dropped == 1


def test_what_is_only_remembered_gives_way_first_and_is_not_missed(tmp_path: Path) -> None:
    with closing(Outbox.open(tmp_path / "box.db", OutboxLimits(max_messages=2))) as outbox:
        first = kept(outbox, answer("a"))
        kept(outbox, answer("b"))
        outbox.sent(first.id)

        assert kept(outbox, answer("c")).forgotten == (Gone("a", ""),)
        assert ids(outbox) == ["b", "c"]
        assert outbox.stats.dropped == 0


def test_one_that_is_larger_than_all_the_room_makes_no_others_give_way(tmp_path: Path) -> None:
    with closing(Outbox.open(tmp_path / "box.db", OutboxLimits(max_bytes=2000))) as outbox:
        kept(outbox, answer("a"))

        outcome = outbox.put(answer("b", size=2000))

        assert isinstance(outcome, Dropped)
        assert outcome.is_refused
        assert ids(outbox) == ["a"]


@pytest.mark.parametrize(("messages", "size"), [(0, 1), (1, 0), (1, -1)])
def test_a_bound_of_nothing_is_refused(messages: int, size: int) -> None:
    with pytest.raises(SettingError, match="use 1 or more of each"):
        OutboxLimits(max_messages=messages, max_bytes=size)


class Model(RuleBasedStateMachine):
    """Beside a dict that does the same: nothing is lost that was not said to be dropped."""

    drop = Drop.OLDEST

    def __init__(self) -> None:
        super().__init__()
        self.limits = OutboxLimits(max_messages=5, max_bytes=5 * ROW_BYTES + 1000, drop=self.drop)
        self.path = _fresh()
        self.outbox = Outbox.open(self.path, self.limits)
        self.waits: dict[str, int] = {}  # request ids, in order, with their row
        self.put = self.said = 0

    @rule(size=st.integers(0, 1500))
    def keep(self, size: int) -> None:
        self.put += 1
        name = f"r{self.put}"
        with self.outbox.group():
            outcome = self.outbox.put(answer(name, size=size, action=""))
        if isinstance(outcome, Dropped):
            self.said += 1
            return
        assert self.drop is Drop.OLDEST or not outcome.dropped
        for gone in outcome.dropped:
            assert gone.request_id == next(iter(self.waits))
            del self.waits[gone.request_id]
            self.said += 1
        self.waits[name] = outcome.id

    @precondition(lambda self: self.waits)
    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.waits)))
        with self.outbox.group():
            self.outbox.sent(self.waits.pop(name))

    @rule()
    def fail(self) -> None:
        """A group that ends badly leaves everything as it was."""
        with suppress(ZeroDivisionError), self.outbox.group():
            self.outbox.put(answer("never"))
            raise ZeroDivisionError

    @rule()
    def reopen(self) -> None:
        self.outbox.close()
        self.outbox = Outbox.open(self.path, self.limits)

    @invariant()
    def nothing_is_lost_unsaid(self) -> None:
        assert ids(self.outbox) == list(self.waits)
        assert self.outbox.stats.dropped == self.said
        assert self.outbox.stats.messages == len(self.waits)

    @invariant()
    def it_is_within_its_bound(self) -> None:
        with closing(sqlite3.connect(self.path)) as database:
            messages, size = database.execute("SELECT count(*), coalesce(sum(bytes), 0) FROM answers").fetchone()
        assert messages <= self.limits.max_messages
        assert size <= self.limits.max_bytes

    def teardown(self) -> None:
        self.outbox.close()


class NewestModel(Model):
    drop = Drop.NEWEST


_scratch: list[Path] = []


def _fresh() -> Path:
    _scratch.append(_scratch[0].parent / f"box-{len(_scratch)}.db")
    return _scratch[-1]


@pytest.mark.parametrize("model", [Model, NewestModel])
def test_it_is_never_over_its_bound_and_loses_nothing_unsaid(tmp_path: Path, model: type[Model]) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    _scratch[:] = [tmp_path / "first"]
    run_state_machine_as_test(model, settings=settings(max_examples=15, stateful_step_count=25, deadline=None))


def test_an_answer_that_cannot_be_read_any_more_is_dropped_and_holds_up_no_other(tmp_path: Path) -> None:
    with closing(Outbox.open(tmp_path / "box.db")) as outbox:
        kept(outbox, answer("a"))
        kept(outbox, answer("b"))
        with closing(sqlite3.connect(tmp_path / "box.db")) as database:
            database.execute("UPDATE answers SET message = x'c1' WHERE request_id = 'a'")
            database.commit()

        assert ids(outbox) == ["b"]
        assert outbox.find("a") is None
        assert outbox.stats.dropped == 1


# --- Kills, and files that are no good ------------------------------------------------------------------

_WRITER = """
import sys
from pathlib import Path
from canoa.broker.port import Message
from canoa.worker.outbox import Entry, Outbox
outbox = Outbox.open(Path(sys.argv[1]))
number = 0
while True:
    with outbox.group():
        for _ in range(3):
            number += 1
            outbox.put(Entry(request_id=f"r{number}", message=Message(body=b"x" * 3000)))
    print(number, flush=True)
"""


@given(after=st.integers(1, 40))
@settings(max_examples=5, deadline=None)
def test_killed_in_the_middle_of_a_write_it_has_all_that_was_committed(
    tmp_path_factory: pytest.TempPathFactory, after: int
) -> None:
    path = tmp_path_factory.mktemp("killed") / "box.db"
    with subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        committed = [int(writer.stdout.readline()) for _ in range(after)]
        os.kill(writer.pid, signal.SIGKILL)

    assert look(path).messages >= committed[-1]  # seen from outside before anybody mends it
    with closing(Outbox.open(path)) as outbox:
        found = [int(each.entry.request_id[1:]) for each in outbox.waiting(limit=10_000)]

    assert found == list(range(1, len(found) + 1))
    assert len(found) % 3 == 0  # a group is there as a whole, or not at all
    assert len(found) >= committed[-1]


def test_a_broken_file_is_put_aside_and_another_one_begun(tmp_path: Path) -> None:
    path = tmp_path / "box.db"
    path.write_bytes(b"no database at all" * 500)

    with closing(Outbox.open(path)) as outbox:
        kept(outbox, answer("a"))

        assert ids(outbox) == ["a"]
    assert (tmp_path / "box.db.broken").read_bytes().startswith(b"no database")


def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "box.db"
    Outbox.open(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")

    with pytest.raises(OutboxUnusable, match="written by a newer version"):
        Outbox.open(path)


def test_two_cannot_have_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_file, "LOCKED_WITHIN_S", 0.1)
    with closing(Outbox.open(tmp_path / "box.db")), pytest.raises(OutboxUnusable, match="another worker has"):
        Outbox.open(tmp_path / "box.db")

    Outbox.open(tmp_path / "box.db").close()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(OutboxUnusable, match=r"the outbox .*file/box.db cannot be made"):
        Outbox.open(tmp_path / "file" / "box.db")


# --- Seen from outside ------------------------------------------------------------------------------------


def test_what_waits_is_seen_by_action_while_it_is_written(tmp_path: Path) -> None:
    now_ms = 1_000
    limits = OutboxLimits(max_messages=4)
    with closing(Outbox.open(tmp_path / "box.db", limits, now=lambda: now_ms)) as outbox:
        for name in "abc":
            kept(outbox, answer(name))
            now_ms += 1_000
        kept(outbox, answer("d", action="urn:sapparchi:Action:shop.other"))
        kept(outbox, answer("e", action="urn:sapparchi:Action:shop.other"))

        seen = look(tmp_path / "box.db")

        assert [(each.action[-10:], each.messages, each.oldest_ms) for each in seen.actions] == [
            ("hop.double", 2, 2_000),
            ("shop.other", 2, 4_000),
        ]
        assert (seen.messages, seen.bytes, seen.oldest_ms, seen.dropped) == (4, outbox.stats.bytes, 2_000, 1)


def test_there_is_nothing_to_be_seen_where_there_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(OutboxUnusable, match="there is no outbox"):
        look(tmp_path / "box.db")
    assert not (tmp_path / "box.db").exists()
