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
    """For one group of moves. A choice may have claimed the one trial of a node that was down: asked anew, the route
    would choose another one, and the trial would never be sent. Who asks the same may have anybody's answer."""

    def __init__(self, route: Route) -> None:
        self.take_back = route.take_back
        self.is_known = route.is_known
        self.unknown = route.unknown
        self.answered_ms = route.answered_ms
        self.since_ms = route.since_ms
        self._choose = route.choose
        self._made: list[tuple[Question, Choice | None]] = []  # since the moves were begun
        self._left: dict[Question, deque[Choice | None]] = {}  # from before

    def begin_again(self) -> None:
        """The moves are taken from the first one on; what was chosen for them so far is void."""
        for question, choice in self._made:
            self._left.setdefault(question, deque()).append(choice)
        self._made.clear()

    def choose(self, need: Need) -> Choice | None:
        said = None if need.placement is None else msgspec.json.encode(need.placement)
        question = need.action, need.avoid, need.retries_left, said, need.near, need.site
        left = self._left.get(question)
        choice = left.popleft() if left else self._choose(need)
        self._made.append((question, choice))
        return choice


_port: type[Route] = SameChoices
