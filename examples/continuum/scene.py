"""Where the plan runs: a manager and its nodes, in one process (`together.py`) or in several (`processes.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from examples.continuum.nodes import Node


class Scene(Protocol):
    async def joined(self, nodes: Sequence[Node]) -> None:
        """Until the manager knows these to be there, and no others."""

    async def told(self, url: str) -> str:
        """The plan runs once: its story, and its result."""
