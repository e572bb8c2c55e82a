"""A route that says the same again, for moves that are taken again from the beginning."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from canoa.execution.step_moves import Choice, Need, Route
    from canoa.vocabulary import ActionName, NodeId

    Question: TypeAlias = tuple[ActionName, frozenset[NodeId], int | None, bytes | None, tuple[NodeId, ...], str]


class SameChoices:
    """For moves that go together. A choice may have claimed the one trial of a node that was down, or its attempt may
    have left already: asked anew, the route would choose another node, and the trial would never be sent, or the
    attempt twice. Who asks the same may have anybody's answer."""

    def __init__(self, route: Route) -> None:
        self.take_back = route.take_back
        self.is_known = route.is_known
        self.unknown = route.unknown
        self.answered_ms = route.answered_ms
        self.since_ms = route.since_ms
        self._choose = route.choose
        self._made: list[tuple[Need, Choice | None]] = []  # since the moves were begun
        self._left: dict[Question, deque[Choice | None]] = {}  # from before

    def begin_again(self) -> None:
        """The moves are taken from the first one on; what was chosen for them so far is void."""
        for need, choice in self._made:
            self._left.setdefault(_question(need), deque()).append(choice)
        self._made.clear()

    def choose(self, need: Need) -> Choice | None:
        left = self._left.get(_question(need)) if self._left else None
        choice = left.popleft() if left else self._choose(need)
        self._made.append((need, choice))
        return choice

    def stand(self) -> None:
        """What was chosen since they were begun is committed."""
        self._made.clear()

    def take_back_rest(self, now_ms: int) -> None:
        """What does not stand never will: those nodes have nothing of it to do."""
        self.begin_again()
        for (action, *_), choices in self._left.items():
            for choice in choices:
                if choice is not None:
                    self.take_back(choice.node_id, action, now_ms)
        self._left.clear()


def _question(need: Need) -> Question:
    said = None if need.placement is None else msgspec.json.encode(need.placement)
    return need.action, need.avoid, need.retries_left, said, need.near, need.site


_port: type[Route] = SameChoices
