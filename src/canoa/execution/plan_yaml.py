"""YAML as plain values, bounded: no aliases (a few lines of them unfold to gigabytes), no tags, no deep nesting, no key
twice. Needs PyYAML, so it is imported only where a plan file is YAML.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from canoa.errors import PlanRefused

MAX_DEPTH: Final = 50

_MAP: Final = "tag:yaml.org,2002:map"
_LIST: Final = "tag:yaml.org,2002:seq"


class _Loader(yaml.SafeLoader):
    """Stops at the first alias and below the depth limit, before anything is built. The pure Python one: it nests on
    Python's stack, which is bounded."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise refused(self.get_mark(), "an alias (*name) is not taken; write the value out")
        if self.depth >= MAX_DEPTH:
            raise refused(self.get_mark(), f"more than {MAX_DEPTH} levels of nesting; flatten it")
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


def read(text: str) -> tuple[Any, dict[str, int]]:
    """The document, and on which line each of its steps stands. Raises `PlanRefused`."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        return (None, {}) if node is None else (_value(loader, node), _step_lines(node))
    except yaml.MarkedYAMLError as exc:
        raise refused(exc.problem_mark, f"not YAML: {exc.problem!s:.200}; check the indentation and quotes") from exc
    except yaml.YAMLError as exc:
        raise PlanRefused(f"not YAML: {exc!s:.200}; save it as UTF-8 text") from exc


def refused(mark: yaml.Mark | None, why: str) -> PlanRefused:
    return PlanRefused(why if mark is None else f"line {mark.line + 1}: {why}")


def _value(loader: _Loader, node: yaml.Node) -> Any:
    match node:
        case yaml.MappingNode(tag=tag) if tag == _MAP:
            return _mapping(loader, node)
        case yaml.SequenceNode(tag=tag) if tag == _LIST:
            return [_value(loader, each) for each in node.value]
        case yaml.ScalarNode():
            return _scalar(loader, node)
        case _:
            raise refused(node.start_mark, f"tag {node.tag!r:.60} is not taken; write plain values")


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = _value(loader, key_node)
        if not isinstance(key, str):
            raise refused(key_node.start_mark, f"key {key!r:.60} is no text; put it in quotes")
        if key in values:
            raise refused(key_node.start_mark, f"key {key!r:.60} is there twice; remove one, or rename it")
        values[key] = _value(loader, value_node)
    return values


def _scalar(loader: _Loader, node: yaml.ScalarNode) -> Any:
    try:
        return loader.construct_object(node)
    except yaml.YAMLError:
        raise
    except Exception as exc:  # its own constructors let through whatever a wrong number or date makes them raise
        raise refused(node.start_mark, f"{node.value!r:.60} cannot be read ({exc}); put it in quotes") from exc


def _step_lines(node: yaml.Node) -> dict[str, int]:
    steps = _child(node, "steps")
    if not isinstance(steps, yaml.MappingNode):
        return {}
    return {key.value: key.start_mark.line + 1 for key, _ in steps.value if isinstance(key, yaml.ScalarNode)}


def _child(node: yaml.Node, name: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for key, value in node.value if key.value == name), None)
