"""Several writes to different rows as one statement: one round trip to PostgreSQL instead of one each.

The statement is all or nothing by itself: so it needs no transaction around it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from canoa.store.postgres_link import MetAnother, NotAsExpected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.store.postgres_link import Fetches

_PARAMETER: Final = re.compile(r"\$(\d+)")
_VERSION: Final = "txid_current() % 4294967296"
# Text that is no number is an error, which undoes the whole, and says in the server's log what it means.
_ERROR: Final = "('another program was faster; Canoa tries again ' || (SELECT count(*) FROM part_0))::bigint"


class _Part(NamedTuple):
    statement: str
    parameters: int
    is_all_or_none: bool


class Writes:
    """All see the rows as they are before: no row may be written by two of them."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._values: list[Any] = []
        self._expected: list[int] = []  # rows that must be written, by each part that is all or none

    def add(self, statement: str, columns: Sequence[Sequence[Any]], *, is_all_or_none: bool = False) -> None:
        """`columns`: an array for each of its parameters; none: there is nothing to write. `is_all_or_none`: where a
        row could not be written, another program was faster, and `send` raises `MetAnother`."""
        if not columns:
            return
        if is_all_or_none:
            self._expected.append(len(columns[0]))
        self._parts.append(_Part(statement, len(columns), is_all_or_none))
        self._values += columns

    async def send(self, connection: Fetches) -> int:
        """The version of the rows that were written: what `xmin` says of them."""
        if not self._parts:
            return 0
        try:
            ((version,),) = await connection.fetch(_joined(tuple(self._parts)), *self._values, *self._expected)
        except NotAsExpected as exc:
            raise MetAnother from exc
        return int(version)


@cache
def _joined(parts: tuple[_Part, ...]) -> str:
    """One statement. Its parameters: those of the parts, then how many rows those must write that are all or none."""
    given = 0
    commands: list[str] = []
    for at, part in enumerate(parts):
        moved = _PARAMETER.sub(lambda found, by=given: f"${int(found[1]) + by}", part.statement)  # type: ignore[misc]
        commands.append(f"part_{at} AS ({moved} RETURNING 1)")
        given += part.parameters
    checked = [at for at, part in enumerate(parts) if part.is_all_or_none]
    counts = [f"(SELECT count(*) FROM part_{at}) = ${number}" for number, at in enumerate(checked, start=given + 1)]
    version = f"CASE WHEN {' AND '.join(counts)} THEN {_VERSION} ELSE {_ERROR} END" if counts else _VERSION
    return f"WITH {', '.join(commands)} SELECT {version}"
