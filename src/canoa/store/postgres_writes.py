"""Several writes to different rows as one statement: one round trip to PostgreSQL instead of one each.

The statement is all or nothing by itself: so it needs no transaction around it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from canoa.store.postgres_link import MetAnother, NotAsExpected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.store.postgres_link import Fetches

_PARAMETER: Final = re.compile(r"\$(\d+)")


class Writes:
    """All see the rows as they are before: no row may be written by two of them."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._values: list[Any] = []
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

    async def send(self, connection: Fetches) -> int:
        """The version of the rows that were written: what `xmin` says of them."""
        if not self._parts:
            return 0
        parts = ", ".join(f"part_{at} AS ({part} RETURNING 1)" for at, part in enumerate(self._parts))
        try:
            ((version,),) = await connection.fetch(f"WITH {parts} SELECT {self._version()}", *self._values)
        except NotAsExpected as exc:
            raise MetAnother from exc
        return int(version)

    def _version(self) -> str:
        """Or an error, which undoes the whole: text that is no number, and says in the server's log what it means."""
        version = "txid_current() % 4294967296"
        first = len(self._values) + 1
        counts = [
            f"(SELECT count(*) FROM part_{at}) = ${number}" for number, at in enumerate(self._expected, start=first)
        ]
        self._values += self._expected.values()
        if not counts:
            return version
        words = "('another program was faster; Canoa tries again ' || (SELECT count(*) FROM part_0))::bigint"
        return f"CASE WHEN {' AND '.join(counts)} THEN {version} ELSE {words} END"
