"""A route that says the same again, for moves that are taken again from the beginning."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from canoa.execution.step_moves import Choice, Need, Route

    Made: TypeAlias = tuple[Need, Choice | None]


class SameChoices:
    """For moves that go together. A choice may have claimed the one trial of a node that was down, or its attempt may
    have left already: asked anew, the route would choose another node, and the trial would never be sent, or the
    attempt twice. So each step has the choice that was made for it, where it asks for the same."""

    def __init__(self, route: Route) -> None:
        self.take_back = route.take_back
        self.is_known = route.is_known
        self.unknown = route.unknown
        self.answered_ms = route.answered_ms
        self.since_ms = route.since_ms
        self._choose = route.choose
        self._made: list[Made] = []  # since the moves were begun
        self._left: dict[tuple[str, int], deque[Made]] = {}  # from before, by step

    def begin_again(self) -> None:
        """The moves are taken from the first one on; what was chosen for them so far is void."""
        for made in self._made:
            self._left.setdefault(_step(made[0]), deque()).append(made)
        self._made.clear()

    def choose(self, need: Need) -> Choice | None:
        left = self._left.get(_step(need)) if self._left else None
        choice = left.popleft()[1] if left and _asks_the_same(left[0][0], need) else self._choose(need)
        self._made.append((need, choice))
        return choice

    def stand(self) -> None:
        """What was chosen since they were begun is committed."""
        self._made.clear()

    def take_back_rest(self, now_ms: int) -> None:
        """What does not stand never will: those nodes have nothing of it to do."""
        self.begin_again()
        for made in self._left.values():
            for need, choice in made:
                if choice is not None:
                    self.take_back(choice.node_id, need.action, now_ms)
        self._left.clear()


def _step(need: Need) -> tuple[str, int]:
    return need.task_id, need.step


def _asks_the_same(before: Need, now: Need) -> bool:
    """But for the time, and for the size of its input."""
    return (before.action, before.avoid, before.retries_left, before.placement, before.near, before.site) == (
        now.action,
        now.avoid,
        now.retries_left,
        now.placement,
        now.near,
        now.site,
    )


_port: type[Route] = SameChoices
