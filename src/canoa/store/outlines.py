"""The plans that one program has seen lately, ready for use: a running task's plan is read once, not with every move.

Safe to keep: a plan never changes. It also remembers which of them the store surely has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canoa.execution.step_records import encode_plan, outline_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canoa.execution.plan import Plan
    from canoa.execution.step_records import Outline

MAX_OUTLINES: Final = 1_000
MAX_BYTES: Final = 16 * 1024 * 1024
"""Of their documents. More of either spare reads where very many plans are in use, and take memory."""

USED_EVERY_MS: Final = 3_600_000
"""How exactly the store knows when a plan was used last; `retention.py` keeps one for longer than that."""


class Outlines:
    def __init__(self) -> None:
        self._by_id: dict[str, Outline] = {}
        self._by_doc: dict[bytes, Outline] = {}
        # Most tasks come with the very plan of those before. Held here, so that no other gets its `id`.
        self._by_plan: dict[int, tuple[Plan, Outline]] = {}
        self._used_ms: dict[str, int] = {}
        self._bytes = 0

    def of(self, plan: Plan) -> Outline:
        known = self._by_plan.get(id(plan))
        if known is None:
            doc = encode_plan(plan)
            known = plan, self._by_doc.get(doc) or self.add(doc)
            if len(self._by_plan) >= MAX_OUTLINES:
                self._by_plan.clear()
            self._by_plan[id(plan)] = known
        return known[1]

    def get(self, plan_id: str) -> Outline | None:
        return self._by_id.get(plan_id)

    def add(self, doc: bytes) -> Outline:
        """As the store has it."""
        outline = outline_of(doc)
        while self._by_id and (len(self._by_id) >= MAX_OUTLINES or self._bytes + len(doc) > MAX_BYTES):
            self._drop(next(iter(self._by_id)))
        if outline.id not in self._by_id:
            self._bytes += len(doc)
        self._by_id[outline.id] = self._by_doc[outline.doc] = outline
        return outline

    def to_write(self, plans: Iterable[tuple[Outline, int]]) -> list[tuple[Outline, int]]:
        """Those that the store may not have, or may soon forget."""
        return [
            (outline, now_ms)
            for outline, now_ms in plans
            if not 0 <= now_ms - self._used_ms.get(outline.id, -USED_EVERY_MS) < USED_EVERY_MS
        ]

    def written(self, plans: Iterable[tuple[Outline, int]]) -> None:
        """And committed."""
        for outline, now_ms in plans:
            if outline.id in self._by_id:
                self._used_ms[outline.id] = now_ms

    def _drop(self, plan_id: str) -> None:
        outline = self._by_id.pop(plan_id)
        self._bytes -= len(outline.doc)
        self._by_doc.pop(outline.doc, None)
        self._by_plan.clear()
        self._used_ms.pop(plan_id, None)
