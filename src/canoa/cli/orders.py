"""Arguments as people give them: one JSON object on the command line or on stdin, or one per line of a file."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from canoa.client.door import Order
from canoa.errors import ArgumentsRefused, SettingError, Undecodable
from canoa.recorder.views import SubmitOptions
from canoa.wire.codec import Codec, TypeMismatch

if TYPE_CHECKING:
    from collections.abc import Iterator

ActionArgument = Annotated[
    str, typer.Argument(help="The action: app.name, or its URN.", metavar="ACTION", show_default=False)
]
JsonArgument = Annotated[
    str, typer.Argument(help="A JSON object of its parameters; - reads it from stdin.", metavar="JSON")
]

MAX_LINE_CHARS = 16 * 1024 * 1024

_object = Codec[dict[str, object]](dict[str, object])


def one(action: str, text: str, options: SubmitOptions | None = None) -> Order:
    return _order(action, sys.stdin.read() if text == "-" else text, options)


def lines(action: str, path: str, options: SubmitOptions | None = None) -> Iterator[Order]:
    """One per line that is not empty; `-` is stdin. Read as it is asked for: a pipe may be slow, or endless."""
    with _opened(path) as source:
        for number, line in enumerate(_limited(source), start=1):
            if line.strip():
                try:
                    yield _order(action, line, options)
                except ArgumentsRefused as exc:
                    raise ArgumentsRefused(f"line {number}: {exc}") from exc


def in_parts(orders: Iterator[Order], size: int) -> Iterator[list[Order]]:
    while part := list(islice(orders, size)):
        yield part


def count_lines(path: str) -> int | None:
    """How many orders a file has, for a progress bar; None where that cannot be known beforehand."""
    if path == "-" or not Path(path).is_file():
        return None
    with Path(path).open("rb") as source:
        return sum(1 for line in source if line.strip())


def _order(action: str, text: str, options: SubmitOptions | None) -> Order:
    body = text.encode()
    try:
        _object.decode(body, None)
    except Undecodable as exc:
        raise ArgumentsRefused(f"the arguments are not JSON ({exc.__cause__ or exc}): {text[:80]}") from exc
    except TypeMismatch as exc:
        raise ArgumentsRefused(f'the arguments must be a JSON object, such as \'{{"path": "a.png"}}\': {exc}') from exc
    return Order(action=action, arguments=msgspec.Raw(body), options=options or SubmitOptions())


def _opened(path: str) -> AbstractContextManager[IO[str]]:
    if path == "-":
        return nullcontext(sys.stdin)
    try:
        return Path(path).open(encoding="utf-8")
    except OSError as exc:
        raise SettingError(f"cannot read {path}: {exc.strerror}; name a file with one JSON object per line") from exc


def _limited(source: Any) -> Iterator[str]:
    try:
        while line := source.readline(MAX_LINE_CHARS):
            yield line
    except UnicodeDecodeError as exc:
        raise SettingError(f"{source.name} is not UTF-8: {exc}") from exc
