"""Who was passed over when an attempt was sent stays with the attempt, whatever becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace
from tests.contract.store.routed_words import CHAIN, Nodes, answer, begin, failed, lost, move, rerun

from canoa.vocabulary import TaskId

if TYPE_CHECKING:
    from tests.contract.store.conftest import OpenStore

    from canoa.execution.step_moves import Choice, Need
    from canoa.store.routed_port import FullStore

A = TaskId("a")


class Choosy(Nodes):
    """Says of every choice whom it passed over, and which choice that was."""

    def __init__(self) -> None:
        super().__init__("gw-7", "gw-8")
        self._choices = 0

    def choose(self, need: Need) -> Choice | None:
        choice = super().choose(need)
        self._choices += 1
        told = (f"edge-1: silent at choice {self._choices}", "fog-1: another layer is preferred")
        return None if choice is None else replace(choice, passed=told)


async def told(store: FullStore, step: int = 0) -> list[tuple[str, str | None]]:
    """Of each attempt of a step: who was passed over first, and how it ended."""
    rows = await store.steps(A)
    for each in rows[step].attempts:
        assert each.passed[1:] == ("fog-1: another layer is preferred",)
    return [(each.passed[0], each.outcome) for each in rows[step].attempts]


async def test_who_was_passed_over_is_told_while_an_attempt_is_out_and_after_it_has_ended(store: FullStore) -> None:
    await move(store, begin("a"), route=Choosy())
    while_out = await told(store)
    await move(store, answer("a.0.1.1"))

    assert while_out == [("edge-1: silent at choice 1", None)]
    assert await told(store) == [("edge-1: silent at choice 1", "ok")]


async def test_every_attempt_tells_of_its_own_choice_whether_it_was_lost_failed_or_run_again(store: FullStore) -> None:
    route = Choosy()
    await move(store, begin("a"), route=route)
    await move(store, lost("a.0.1.1"), route=route)
    await move(store, failed("a.0.1.2"), route=route)
    await move(store, rerun("a"), route=route)

    first, second, third = await told(store)
    assert first == ("edge-1: silent at choice 1", "lost")
    assert second == ("edge-1: silent at choice 2", "failed")
    assert third == ("edge-1: silent at choice 3", None)


async def test_a_store_that_is_opened_later_still_knows_who_was_passed_over(open_store: OpenStore) -> None:
    route, first = Choosy(), await open_store()
    await move(first, begin("a", CHAIN), route=route)
    await move(first, answer("a.0.1.1"), route=route)
    await first.aclose()

    second = await open_store()
    reopened = [await told(second, step) for step in (0, 1)]
    await move(second, answer("a.1.1.1"), route=route)

    assert reopened == [[("edge-1: silent at choice 1", "ok")], [("edge-1: silent at choice 2", None)]]
    assert await told(second, 1) == [("edge-1: silent at choice 2", "ok")]
    assert await told(second, 2) == [("edge-1: silent at choice 3", None)]
