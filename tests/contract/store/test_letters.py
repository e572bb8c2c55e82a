"""Dead letters: which deaths leave one, and how a task comes back from them, once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.contract.store.words import (
    MAIL,
    NOW_MS,
    RESIZE,
    accept,
    accepted,
    applied,
    bury,
    end,
    ended,
    redrive,
    result_body,
    row,
)

from canoa.broker import topology
from canoa.execution.outcome import Outcome
from canoa.store.port import BURIED, Cursor, Ended, Letter, State
from canoa.vocabulary import NodeId, TaskId
from canoa.wire import task as task_wire

if TYPE_CHECKING:
    from tests.contract.store.conftest import OpenStore

    from canoa.store.port import Store


async def waiting(store: Store) -> list[str]:
    return [letter.task_id for letter in await store.letters(limit=100)]


def behind(letter: Letter) -> Cursor:
    return Cursor(letter.dead_ms, letter.task_id)


@pytest.mark.parametrize("outcome", sorted(BURIED))
async def test_a_kept_task_that_ends_badly_leaves_a_letter(store: Store, outcome: Outcome) -> None:
    await accepted(store, "a")

    await ended(store, "a", outcome, error="boom", traceback="Trace", attempts=4, node_id=NodeId("node-1"))

    assert await store.letter(TaskId("a")) == Letter(
        task_id=TaskId("a"),
        action=RESIZE,
        reason=outcome,
        error="boom",
        traceback="Trace",
        attempts=4,
        node_id=NodeId("node-1"),
        origin=topology.action_queue_name(RESIZE),
        dead_ms=NOW_MS + 1000,
    )


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.CANCELLED])
async def test_a_task_that_ends_well_or_by_wish_leaves_no_letter(store: Store, outcome: Outcome) -> None:
    await accepted(store, "a")

    await ended(store, "a", outcome)

    assert await store.letter(TaskId("a")) is None


async def test_a_task_that_nobody_can_send_again_leaves_no_letter(store: Store) -> None:
    """Its message was never here."""
    await ended(store, "a", Outcome.FAILED)

    assert await store.letter(TaskId("a")) is None


async def test_a_second_end_leaves_no_letter(store: Store) -> None:
    await accepted(store, "a")

    await applied(store, end("a"), end("a", Outcome.FAILED))

    assert await store.letter(TaskId("a")) is None


async def test_a_letter_from_elsewhere_is_kept_once(store: Store) -> None:
    assert await applied(store, bury("a"), bury("a"), bury("a", dead_ms=NOW_MS - 1)) == [True, False, False]
    assert await applied(store, bury("a")) == [False]

    found = await store.letter(TaskId("a"))
    assert found == bury("a").letter
    assert await store.task(TaskId("a")) is None


async def test_a_later_death_replaces_the_letter(store: Store) -> None:
    await applied(store, bury("a"))

    assert await applied(store, bury("a", dead_ms=NOW_MS + 1)) == [True]

    assert [letter.dead_ms for letter in await store.letters(limit=10)] == [NOW_MS + 1]


async def test_a_letter_of_a_kept_task_is_left_to_its_end(store: Store) -> None:
    await accepted(store, "a")

    assert await applied(store, bury("a")) == [False]
    assert await store.letter(TaskId("a")) is None


async def test_the_letter_of_a_task_whose_end_came_without_its_message_is_kept(store: Store) -> None:
    await ended(store, "a", Outcome.FAILED)

    assert await applied(store, bury("a"), bury("a", dead_ms=NOW_MS + 9)) == [True, False]


async def test_a_redriven_task_is_open_again_as_its_next_run(store: Store) -> None:
    await accepted(store, "a", reply_to="canoa.reply.1")
    await ended(store, "a", Outcome.FAILED, error="boom", attempts=3, node_id=NodeId("node-1"))

    assert await applied(store, redrive("a")) == [True]

    seen = await row(store, "a")
    assert (seen.state, seen.outcome, seen.run, seen.attempts) == (State.WAITING, None, 1, 0)
    assert (seen.error, seen.node_id, seen.started_ms, seen.ended_ms) == (None, None, None, None)
    assert await result_body(store, "a") is None
    assert await waiting(store) == []
    assert await ended(store, "a", run=1) == Ended(is_first=True, reply_to=("canoa.reply.1",))


async def test_a_redriven_task_is_in_the_outbox_as_it_was_first_sent(store: Store) -> None:
    headers = {"mine": "kept", task_wire.ATTEMPT: 3, task_wire.DEADLINE: 12, "x-death": [{"queue": "q"}]}
    await accepted(store, "a", headers=headers, expiration_s=60.0, reply_to="r")
    await ended(store, "a", Outcome.FAILED)

    await applied(store, redrive("a"))

    (sent,) = await store.take_outbox(now_ms=NOW_MS, limit=10, for_ms=1000)
    assert sent.publication.key == topology.action_queue_name(RESIZE)
    assert sent.publication.message.headers == {"mine": "kept", task_wire.RUN: 1}
    assert (sent.publication.message.reply_to, sent.publication.message.expiration_s) == (topology.RESULTS, None)
    (open_again,) = await store.unfinished(limit=10)
    assert open_again.message == sent.publication.message


async def test_a_letter_is_redriven_once(store: Store) -> None:
    await accepted(store, "a")
    await ended(store, "a", Outcome.FAILED)

    assert await applied(store, redrive("a"), redrive("a")) == [True, False]
    assert await applied(store, redrive("a")) == [False]
    assert len(await store.take_outbox(now_ms=NOW_MS, limit=10, for_ms=1000)) == 1


async def test_many_letters_are_redriven_in_one_batch_each_once(store: Store) -> None:
    names = [f"{number:03}" for number in range(500)]
    await applied(store, *map(bury, names))

    done = await applied(store, *map(redrive, names), redrive("unknown"), redrive("007"))

    assert done == [True] * 500 + [False, False]
    assert await waiting(store) == []
    owed = await store.take_outbox(now_ms=NOW_MS, limit=1000, for_ms=1000)
    assert [each.publication.message.message_id for each in owed] == names


async def test_a_task_that_dies_again_is_redriven_again(store: Store) -> None:
    await accepted(store, "a")
    await ended(store, "a", Outcome.FAILED)
    await applied(store, redrive("a"))

    await ended(store, "a", Outcome.TIMED_OUT, run=1, ended_ms=NOW_MS - 9)  # by a clock that is behind

    assert await waiting(store) == ["a"]
    assert await applied(store, redrive("a")) == [True]
    assert (await row(store, "a")).run == 2


async def test_a_late_result_of_an_earlier_run_does_not_end_the_next(store: Store) -> None:
    await accepted(store, "a")
    await ended(store, "a", Outcome.FAILED)
    await applied(store, redrive("a"))

    assert await ended(store, "a", run=0) == Ended(is_first=False)
    assert (await row(store, "a")).state is State.WAITING


async def test_death_redrive_and_end_fit_into_one_batch(store: Store) -> None:
    answers = await applied(
        store, accept("a"), end("a", Outcome.FAILED), redrive("a"), end("a"), end("a", run=1, body=b"good")
    )

    assert [getattr(answer, "is_first", answer) for answer in answers[1:]] == [True, True, False, True]
    assert ((await row(store, "a")).outcome, await result_body(store, "a")) == (Outcome.OK, b"good")
    assert await waiting(store) == []


async def test_a_redriven_letter_of_a_task_from_elsewhere_is_kept_from_now_on(store: Store) -> None:
    await applied(store, bury("a"))

    assert await applied(store, redrive("a")) == [True]

    assert ((await row(store, "a")).state, (await row(store, "a")).run) == (State.WAITING, 1)
    (sent,) = await store.take_outbox(now_ms=NOW_MS, limit=10, for_ms=1000)
    assert (sent.publication.message.body, sent.publication.message.headers) == (b'{"width": 7}', {task_wire.RUN: 1})
    await ended(store, "a", Outcome.FAILED, run=1)
    assert await waiting(store) == ["a"]


async def test_the_run_goes_on_counting_when_only_the_letter_is_left(store: Store) -> None:
    await applied(store, bury("a", headers={task_wire.RUN: 3}), redrive("a"))

    assert (await row(store, "a")).run == 4


async def test_what_is_not_dead_is_not_redriven(store: Store) -> None:
    await accepted(store, "a")

    assert await applied(store, redrive("a"), redrive("nobody")) == [False, False]


async def test_a_letter_is_not_redriven_while_its_task_is_open(store: Store) -> None:
    await applied(store, bury("a"), accept("a"))

    assert await applied(store, redrive("a")) == [False]
    await ended(store, "a", Outcome.FAILED)
    assert await applied(store, redrive("a")) == [True]


async def test_of_several_programs_one_redrives(open_store: OpenStore) -> None:
    stores = [await open_store() for _ in range(4)]
    names = [f"task-{number}" for number in range(20)]
    await applied(stores[0], *(bury(name) for name in names))

    answers = await asyncio.gather(*(store.apply([redrive(name) for name in names]) for store in stores))

    assert [sum(map(bool, of_one)) for of_one in zip(*answers, strict=True)] == [1] * len(names)
    assert len(await stores[0].take_outbox(now_ms=NOW_MS, limit=100, for_ms=1000)) == len(names)


async def test_letters_are_listed_newest_first_without_gaps(store: Store) -> None:
    # Four at each time, so that pages end among equals.
    await applied(store, *(bury(f"{number:02}", dead_ms=NOW_MS + number // 4) for number in range(20)))

    seen: list[str] = []
    page = await store.letters(limit=3)
    while page:
        seen += [letter.task_id for letter in page]
        page = await store.letters(limit=3, before=behind(page[-1]))

    assert seen == [f"{number:02}" for number in reversed(range(20))]


async def test_letters_are_listed_by_action(store: Store) -> None:
    await applied(store, bury("a", action=MAIL), bury("b"), bury("c", action=MAIL, dead_ms=NOW_MS + 1), bury("d"))

    page = await store.letters(limit=10, action=MAIL)
    rest = await store.letters(limit=10, action=MAIL, before=behind(page[0]))

    assert [letter.task_id for letter in page] == ["c", "a"]
    assert [letter.task_id for letter in rest] == ["a"]


async def test_a_letter_that_came_from_nowhere_stays_where_a_person_sees_it(store: Store) -> None:
    letter = bury("a")
    nowhere = msgspec.structs.replace(letter, letter=msgspec.structs.replace(letter.letter, origin=""))
    await applied(store, nowhere)

    assert await applied(store, redrive("a")) == [False]

    assert await waiting(store) == ["a"]
    assert await store.task(TaskId("a")) is None
