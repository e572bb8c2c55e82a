"""Tasks that are new for certain, by their ids: what a store need not look for.

An id of ours says when it was made. One that was made after this program began, and that it has not met, is in no row,
unless the clocks of its makers disagree, or another program was quicker. Then its row is in the way when it is written,
and all that was believed in vain is a first attempt, which runs once more.
"""

from __future__ import annotations

from typing import Final

from canoa.vocabulary import TaskId
from canoa.wire.ids import made_at_s

MET: Final = 20_000
"""Ids that are remembered. More spare looking where tasks wait for long before they are begun, and take memory."""


class Newcomers:
    """`since_ms`: when the program began, in epoch milliseconds."""

    def __init__(self, since_ms: int) -> None:
        self._since_s = since_ms / 1000
        self._met: dict[str, float] = {}  # when they were made, the first ones first

    def is_new(self, task_id: str, now_s: float) -> bool:
        """And met, from now on. `now_s`: epoch seconds; nothing is made later, but for ids that only look like ours."""
        made_s = made_at_s(TaskId(task_id))
        if made_s is None or not self._since_s < made_s <= now_s or task_id[16] not in "89ab" or task_id in self._met:
            return False
        self._met[task_id] = made_s
        if len(self._met) > MET:
            first = next(iter(self._met))
            self._since_s = max(self._since_s, self._met.pop(first))
        return True
