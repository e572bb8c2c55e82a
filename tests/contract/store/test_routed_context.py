"""What a choice was made on comes back with the attempt's end, to whichever manager hears of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract.store.routed_words import CHAIN, FACTOR, FETCH, Nodes, answer, begin, cancel, due, fan, lost, move
from tests.contract.store.words import NOW_MS

from canoa.execution.outcome import Outcome
from canoa.execution.plan import seen_from
from canoa.wire.task import DEADLINE

if TYPE_CHECKING:
    from tests.contract.store.conftest import OpenStore

    from canoa.execution.step_moves import Choice, Need
    from canoa.store.routed_port import FullStore


class Learning(Nodes):
    """Gives every choice a context of its own, and remembers how large it was told that inputs are."""

    def __init__(self) -> None:
        super().__init__("gw-7", "gw-8")
        self.sizes: list[int] = []
        self.asked: list[tuple[str, tuple[str, ...]]] = []  # from where, and near to whom

    def choose(self, need: Need) -> Choice | None:
        choice = super().choose(need)
        self.sizes.append(need.size_bytes)
        self.asked.append((need.site, need.near))
        if choice is not None:
            choice = type(choice)(
                node_id=choice.node_id,
                why=choice.why,
                timeout_s=choice.timeout_s,
                retries=choice.retries,
                context=(float(len(self.sizes)), 0.5),
            )
        return choice


async def test_the_end_of_an_attempt_says_what_its_node_was_chosen_on_and_how_long_it_took(store: FullStore) -> None:
    await move(store, begin("a", CHAIN), route=Learning())
    ended = await move(store, answer("a.0.1.1", "x"))

    assert ended.context == (1.0, 0.5)
    assert ended.took_ms == 100


async def test_an_attempt_that_was_lost_has_a_context_and_no_time(store: FullStore) -> None:
    route = Learning()
    await move(store, begin("a", CHAIN), route=route)
    gone = await move(store, lost("a.0.1.1"), route=route)
    ended = await move(store, answer("a.0.1.2", "x"))

    assert (gone.context, gone.took_ms) == ((1.0, 0.5), None)
    assert (ended.context, ended.took_ms) == ((2.0, 0.5), 50)


async def test_a_choice_knows_how_large_the_input_is(store: FullStore) -> None:
    route = Learning()
    await move(store, begin("a", CHAIN), route=route)
    await move(store, answer("a.0.1.1", "x" * 1000), route=route)

    first, second = route.sizes
    assert 0 < first < 100
    assert second == 1002  # with its quotes


async def test_where_the_caller_stands_is_known_to_whoever_looks_for_a_node_later(open_store: OpenStore) -> None:
    nobody, later = Learning(), Learning()
    nobody.names = []
    first = await open_store()
    waiting = await move(first, begin("a", seen_from(CHAIN, "natal")), route=nobody)
    await first.aclose()

    second = await open_store()
    await move(second, due("a", 0, waiting.due_ms[0]), route=later)
    await move(second, answer("a.0.1.1", "x"), route=later)

    assert nobody.asked == [("natal", ())]
    assert later.asked == [("natal", ()), ("natal", ("gw-8",))]  # of the second step, its input counts


async def test_a_cancelled_task_says_whose_attempts_nobody_waits_for(store: FullStore) -> None:
    await move(store, begin("a", fan(3)))
    await move(store, answer("a.0.1.1", "x"))
    done = await move(store, cancel("a"))

    assert done.freed == (("gw-7", FACTOR),) * 3


async def test_an_attempt_whose_deadline_has_passed_is_not_out_at_its_node(store: FullStore) -> None:
    done = await move(store, begin("a", headers={DEADLINE: NOW_MS - 1}))

    assert (done.outcome, done.freed) == (Outcome.EXPIRED, (("gw-7", FETCH),))
    assert await store.queued_for() == {}
