"""Where an action, or one step of a plan, may run: layers in order, labels, when it spills over, how near to its data.

Values and their checks only. Who follows them is the manager: `manager/placing.py`.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from canoa.errors import SettingError
from canoa.vocabulary import Layer

if TYPE_CHECKING:
    from collections.abc import Mapping

Near: TypeAlias = Literal["", "prefer", "require"]

MAX_SITE_CHARS: Final = 128
SITE_PATTERN: Final = r"^[^\x00-\x1f\x7f-\x9f]*$"
"""As the HTTP API documents it: what fits is taken."""
_SITE: Final = re.compile(SITE_PATTERN)
MAX_LABELS: Final = 50
MAX_LABEL_CHARS: Final = 63


class Placement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`Placement(layers=(Layer.EDGE, Layer.FOG, Layer.CLOUD), spill_queue=10)`: at the edge, unless its nodes have more
    than ten attempts each to do; then in the fog; then in the cloud. Back as soon as there is room."""

    layers: tuple[Layer, ...] = ()  # that are allowed, the preferred first; none: all of them, alike
    labels: dict[str, str] = {}  # a node must have all of them
    spill_queue: float | None = None  # attempts that are out per node, above which the next layer gets what comes
    spill_p95_s: float | None = None  # of answers, above which the next layer gets all of it for a while
    near: Near = ""  # where its input comes from (the steps before, or the caller): "prefer" or "require" that site

    def __post_init__(self) -> None:
        given: object = self.layers
        if isinstance(given, str):
            raise SettingError(f"layers is {given!r:.40}; write several, or one in a tuple, such as (Layer.EDGE,)")
        msgspec.structs.force_setattr(self, "layers", tuple(_layer(each) for each in self.layers))
        if self.near not in ("", "prefer", "require"):
            raise SettingError(f"near is {self.near!r:.40}; use 'prefer' or 'require', or leave it out")
        if len(set(self.layers)) < len(self.layers):
            raise SettingError(f"layers {', '.join(self.layers)}: name each of them once")
        bounds: dict[str, object] = {"spill_queue": self.spill_queue, "spill_p95_s": self.spill_p95_s}
        for name, value in bounds.items():
            if value is not None and (not isinstance(value, int | float) or not 0 < value < math.inf):
                raise SettingError(f"{name} is {value!r}; use a number above 0, or leave it out")
        check_labels(self.labels)

    @property
    def is_watched(self) -> bool:
        """What is out, or how long answers take, may move it."""
        return self.spill_queue is not None or self.spill_p95_s is not None

    def allows(self, layer: Layer, labels: Mapping[str, str]) -> bool:
        return (not self.layers or layer in self.layers) and not self.missing(labels)

    def missing(self, labels: Mapping[str, str]) -> list[str]:
        """Of what a node must have."""
        return [f"{name}={value}" for name, value in self.labels.items() if labels.get(name) != value]


def read_placement(given: Any) -> Placement:
    """From plain values, such as a plan file's. Raises `SettingError`."""
    fields = Placement.__struct_fields__
    if not isinstance(given, dict):
        raise SettingError(f"placement is {given!r:.100}; write an object with {', '.join(fields)}")
    if unknown := [str(each) for each in given if each not in fields]:
        raise SettingError(f"placement has no {', '.join(unknown)[:100]}; it has {', '.join(fields)}")
    check_labels(given.get("labels", {}))
    for layer in given["layers"] if isinstance(given.get("layers"), list) else ():
        _layer(layer)
    try:
        return msgspec.convert(given, Placement)
    except msgspec.ValidationError as exc:
        raise SettingError(f"placement: {exc}") from exc


def _layer(text: Any) -> Layer:
    try:
        return Layer(text)
    except ValueError:
        raise SettingError(f"layer {text!r:.40}: use {', '.join(Layer)}") from None


def check_site(site: str) -> None:
    given: object = site
    if not isinstance(given, str) or len(given) > MAX_SITE_CHARS or _SITE.fullmatch(given) is None:
        raise SettingError(f"site {given!r:.150}: use up to {MAX_SITE_CHARS} characters that can be printed")


def check_labels(labels: Mapping[str, str]) -> None:
    given: object = labels
    if not isinstance(given, dict):
        raise SettingError(f"labels is {given!r:.80}; write texts by name, such as {{'gpu': 'yes'}}")
    if len(labels) > MAX_LABELS:
        raise SettingError(f"{len(labels)} labels; use {MAX_LABELS} at most")
    texts: list[object] = [*labels, *labels.values()]
    for text in texts:
        if not isinstance(text, str):
            raise SettingError(f"label {text!r:.80} is no text; write it in quotes, such as 'yes'")
        if not 0 < len(text) <= MAX_LABEL_CHARS or not text.isprintable():
            raise SettingError(f"label {text!r:.80}: use 1 to {MAX_LABEL_CHARS} characters that can be printed")


def parse_labels(text: str) -> dict[str, str]:
    """From `name=value`, several by comma. Raises `SettingError`."""
    labels: dict[str, str] = {}
    for each in filter(None, text.split(",")):
        name, _, value = (part.strip() for part in each.partition("="))
        if not name or not value:
            raise SettingError(f"label {each!r:.80}: write name=value, such as gpu=yes")
        labels[name] = value
    check_labels(labels)
    return labels
