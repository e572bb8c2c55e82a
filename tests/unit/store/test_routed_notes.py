"""What one program keeps at hand: bounded, and only until it is moved."""

from __future__ import annotations

from tests.contract.store.routed_words import SINGLE, begin

from canoa.broker.port import Message, Publication
from canoa.execution.plan import Plan
from canoa.execution.step_moves import AttemptRow
from canoa.execution.step_records import BLOCKED, Outline, StepRecord, encode_plan, outline_of
from canoa.store.ledger import accepted_record
from canoa.store.routed_debts import MAX_BYTES as MAX_BILL_BYTES
from canoa.store.routed_debts import MAX_MESSAGES, PAID_TOGETHER_MS, Debts, Free
from canoa.store.routed_memory import MAX_BYTES, MAX_TASKS, Memory, RoutedTask
from canoa.store.routed_port import HOLD_OWED_MS, Owed
from canoa.vocabulary import NodeId

OUTLINE = outline_of(encode_plan(SINGLE))


def task(name: str, *, given_bytes: int = 0, outline: Outline = OUTLINE) -> RoutedTask:
    record = accepted_record(begin(name).task)
    return RoutedTask(record, outline, [StepRecord(name, 0, BLOCKED)], given_bytes=given_bytes)


def large_outline(letter: str) -> Outline:
    """Takes about an eighth of what there is room for."""
    return outline_of(encode_plan(Plan(name=letter * (MAX_BYTES // 8 // 12), steps=SINGLE.steps)))


def owed(key: str, *, size_bytes: int = 10) -> Owed:
    return Owed(key=key, publication=Publication(message=Message(body=bytes(size_bytes)), key="q"))


def test_whoever_moves_a_task_takes_it_out() -> None:
    memory = Memory()
    kept = task("a")
    memory.keep([kept])

    assert memory.take(["a", "b"]) == {"a": kept}
    assert memory.take(["a"]) == {}


def test_the_least_lately_moved_tasks_are_dropped_first() -> None:
    memory = Memory()
    memory.keep(task(f"{number}") for number in range(MAX_TASKS))
    memory.keep(memory.take(["0"]).values())
    memory.keep([task("new")])

    assert len(memory) == MAX_TASKS
    assert ("0" in memory, "1" in memory, "new" in memory) == (True, False, True)


def test_large_tasks_are_remembered_up_to_a_size() -> None:
    memory = Memory()
    memory.keep(task(f"{number}", given_bytes=MAX_BYTES // 4) for number in range(9))

    assert [f"{number}" in memory for number in range(9)] == [False] * 6 + [True] * 3
    memory.take([f"{number}" for number in range(9)])
    memory.keep([task("small")])
    assert "small" in memory


def test_tasks_with_plans_of_their_own_are_remembered_up_to_the_size_of_those() -> None:
    memory = Memory()
    memory.keep(task(f"{number}", outline=large_outline(f"{number}")) for number in range(9))
    remembered = [f"{number}" in memory for number in range(9)]
    memory.take([f"{number}" for number in range(9)])
    shared = large_outline("x")
    memory.keep(task(f"{number}", outline=shared) for number in range(100))

    assert remembered == [False] * 2 + [True] * 7
    assert len(memory) == 100


def test_tasks_that_failed_often_are_remembered_up_to_the_size_of_their_errors() -> None:
    memory = Memory()
    failing = task("a")
    sent = AttemptRow(
        attempt=1, node_id=NodeId("gw-7"), why="", sent_ms=0, outcome="lost", error="é" * (MAX_BYTES // 8)
    )
    failing.steps[0].story = [sent] * 9
    failing.count_failures()

    memory.keep([task("b"), failing])

    assert len(memory) == 0


def test_a_bill_is_for_messages_up_to_a_number_and_a_size() -> None:
    debts = Debts()

    many = debts.new_bills([owed(f"{number}") for number in range(2 * MAX_MESSAGES + 1)], until_ms=0)
    large = debts.new_bills([owed(f"{number}", size_bytes=MAX_BILL_BYTES) for number in range(2)], until_ms=0)

    assert [len(bill.left) for bill in many] == [MAX_MESSAGES, MAX_MESSAGES, 1]
    assert [len(bill.left) for bill in large] == [1, 1]


def test_a_row_is_spent_when_all_of_it_was_paid_and_shrinks_before() -> None:
    debts = Debts()
    (bill,) = debts.new_bills([owed("a"), owed("b")], until_ms=5)
    debts.wrote([bill], deleted=[])

    debts.pay("a")
    assert (debts.spent(), [row[0] for row in debts.shrunk()], debts.shrunk()) == ([], [bill.number], [])
    debts.pay("b")
    debts.pay("b")

    assert debts.spent() == [bill.number]
    debts.wrote([], deleted=debts.spent())
    assert debts.spent() == []


def test_bills_want_a_look_when_they_are_held_no_longer_or_a_part_of_them_stays_unpaid() -> None:
    debts, at_ms = Debts(), 1_000_000
    (bill,) = debts.new_bills([owed("a"), owed("b")], until_ms=at_ms + HOLD_OWED_MS)
    debts.wrote([bill], deleted=[])

    def want_a_look(after_ms: int) -> bool:
        return debts.want_a_look(Free.at(at_ms + after_ms, for_ms=1000))

    assert [want_a_look(after_ms) for after_ms in (0, HOLD_OWED_MS - 1, HOLD_OWED_MS)] == [False, False, True]
    debts.pay("a")
    assert [want_a_look(after_ms) for after_ms in (PAID_TOGETHER_MS - 1, PAID_TOGETHER_MS)] == [False, True]
    debts.shrunk()
    assert not want_a_look(PAID_TOGETHER_MS)
    debts.pay("b")
    assert not want_a_look(HOLD_OWED_MS)


def test_what_is_owed_already_is_not_owed_twice() -> None:
    debts = Debts()
    first = debts.new_bills([owed("a")], until_ms=0)
    debts.wrote(first, deleted=[])

    (second,) = debts.new_bills([owed("a"), owed("b")], until_ms=0)

    assert list(second.left) == ["b"]
