"""`.env` files: lines of `NAME=value`, of which only Canoa's own are looked at.

Values stand bare, in single quotes (as they are) or in double quotes (with `\n`, `\t`, `\"`, `\\`). Nothing is filled
in: a `$` is a `$`. A name that comes twice has its last value.
"""

from __future__ import annotations

import re
from typing import Final

_OURS: Final = re.compile(r"\s*(?:export\s+)?(CANOA_\w*)\s*(?:=\s*(.*?))?\s*")
_COMMENT: Final = re.compile(r"(?:^|\s)#.*")
_QUOTED: Final = re.compile(r"""(?:'([^']*)'|"((?:[^"\\]|\\.)*)")\s*(?:#.*)?""")
_ESCAPED: Final = {"n": "\n", "t": "\t"}


def parse(text: str) -> tuple[dict[str, str], list[int]]:
    """Canoa's variables, and the numbers of the lines that name one and cannot be read. Lines of others are theirs."""
    values: dict[str, str] = {}
    unread: list[int] = []
    for number, line in enumerate(text.splitlines(), 1):
        ours = _OURS.fullmatch(line)
        if ours is None:
            continue
        value = None if ours[2] is None else _value(ours[2])
        if value is None:
            unread.append(number)
        else:
            values[ours[1]] = value
    return values, unread


def _value(text: str) -> str | None:
    """None where a quote is not closed, or something follows it."""
    if not text.startswith(("'", '"')):
        return _COMMENT.sub("", text)
    quoted = _QUOTED.fullmatch(text)
    if quoted is None:
        return None
    single, double = quoted.groups()
    return single if double is None else re.sub(r"\\(.)", lambda match: _ESCAPED.get(match[1], match[1]), double)
