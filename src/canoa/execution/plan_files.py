"""A plan from a file's text: JSON where it begins with a brace, YAML otherwise. What is wrong is told with its place.

The form of a plan is in `plan_reading.py`.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from canoa.errors import PlanRefused, SettingError
from canoa.execution.plan_reading import plan_from_document
from canoa.wire.nesting import MAX_DEPTH, json_is_too_deep

if TYPE_CHECKING:
    from canoa.execution.plan import Plan

MAX_TEXT_BYTES: Final = 256 * 1024


def plan_from_text(text: str, *, source: str = "plan") -> Plan:
    """`source`: what to call it in errors, such as the file's name. Raises `PlanRefused`, and `SettingError` where
    YAML is needed and not installed."""
    lines: dict[str, int] = {}
    try:
        document, lines = _document(text)
        return plan_from_document(document)
    except PlanRefused as exc:
        place = f"{source}: line {lines[exc.step]}" if exc.step in lines else source
        raise PlanRefused(f"{place}: {exc}", step=exc.step) from exc


def _document(text: str) -> tuple[Any, dict[str, int]]:
    size_bytes = len(text.encode(errors="replace"))
    if size_bytes > MAX_TEXT_BYTES:
        raise PlanRefused(
            f"{size_bytes:,} bytes are over the limit of {MAX_TEXT_BYTES:,}; pass large values as the task's input"
        )
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        return _json(text.removeprefix("\ufeff")), {}
    return _yaml(text)


def _yaml(text: str) -> tuple[Any, dict[str, int]]:
    try:
        from canoa.execution import plan_yaml
    except ModuleNotFoundError as exc:
        raise SettingError(
            f"a plan in YAML needs {exc.name}; install it with: pip install 'canoa[server]', or write the plan as JSON"
        ) from exc
    return plan_yaml.read(text)


def _json(text: str) -> Any:
    if json_is_too_deep(text.encode(errors="replace")):
        raise PlanRefused(f"more than {MAX_DEPTH} levels of nesting; flatten it")
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except json.JSONDecodeError as exc:
        raise PlanRefused(
            f"line {exc.lineno}: not JSON: {exc.msg}; what begins with a brace is read as JSON, anything else as YAML"
        ) from exc
    except ValueError as exc:  # a number of more digits than the interpreter takes
        raise PlanRefused(f"not JSON: {exc}") from exc


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise PlanRefused(f"key {twice!r:.60} is there twice; remove one, or rename it")
    return values


def _no_constant(text: str) -> Any:
    raise PlanRefused(f"{text} is no JSON; use null or a text in its place")
