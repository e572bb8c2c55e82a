"""Several writes to different rows as one statement: one round trip to PostgreSQL instead of one each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from canoa.store.postgres_link import MetAnother

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.store.postgres_link import Connection

_PARAMETER: Final = re.compile(r"\$(\d+)")


class Writes:
    """All see the rows as they are before: no row may be written by two of them."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._values: list[Sequence[Any]] = []
        self._expected: dict[int, int] = {}  # rows that must be written, by part

    def add(self, statement: str, columns: Sequence[Sequence[Any]], *, is_all_or_none: bool = False) -> None:
        """`columns`: an array for each of its parameters; none: there is nothing to write. `is_all_or_none`: where a
        row could not be written, another program was faster, and `send` raises `MetAnother`."""
        if not columns:
            return
        if is_all_or_none:
            self._expected[len(self._parts)] = len(columns[0])
        first = len(self._values)
        self._parts.append(_PARAMETER.sub(lambda found: f"${int(found[1]) + first}", statement))
        self._values += columns

    async def send(self, connection: Connection) -> None:
        if not self._parts:
            return
        parts = ", ".join(f"part_{at} AS ({part} RETURNING 1)" for at, part in enumerate(self._parts))
        counts = ", ".join(f"(SELECT count(*) FROM part_{at})" for at in range(len(self._parts)))
        written = await connection.fetchrow(f"WITH {parts} SELECT {counts}", *self._values)
        if written is None or any(written[at] != count for at, count in self._expected.items()):
            raise MetAnother
