"""How a rate and a concurrency key are written, and how a worker asks for starts: how many, how far ahead.

Pure. The arithmetic of a rate is in `gcra.py`; what waits for its turn, and where, is in `worker/gate.py`.
"""

from __future__ import annotations

import hashlib
import math
import re
from string import Formatter
from typing import TYPE_CHECKING, Final

from canoa.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_RATE: Final = re.compile(r"([1-9][0-9]{0,8})/([smhd])")

ASK_EVERY_MS: Final = 100
"""How often a worker asks for starts of one action. More often shares them more finely, and costs the store more."""

NEAR_MS: Final = 2000
"""A start within this time is waited for."""

MAX_KEY_CHARS: Final = 200


# --- Rates --------------------------------------------------------------------------------------------


def per_ms(rate: object) -> float:
    """Milliseconds between two starts, of a rate such as `100/m`."""
    found = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    if found is None:
        raise SettingError(f"rate={rate!r:.40}: use a number per s, m, h or d, such as '10/s' or '100/m'")
    return _UNITS_MS[found[2]] / int(found[1])


def starts_at_once(waiting: int, per_ms: float, burst: int) -> int:
    """How many to ask for: what starts until the next question, or a burst that is over soon. Not more, since what is
    reserved here is not free elsewhere."""
    until_next = math.ceil(ASK_EVERY_MS / per_ms)
    soon = max(1, int(NEAR_MS / per_ms))
    return min(waiting, max(until_next, min(burst, soon)))


def ahead_ms(per_ms: float) -> int:
    """How long before its time a start is reserved at most. Rare ones from further away: they are asked for rarely."""
    return int(min(max(NEAR_MS, per_ms / 10), 30_000))


def come_back_s(per_ms: float) -> float:
    """When to try again what waited for its start in vain: small against the time between two starts."""
    return min(max(1.0, per_ms / 10_000), 600.0)


def held_ahead(per_ms: float, burst: int) -> int:
    """How many deliveries are worth holding that have not started: those that may start soon."""
    return max(2, math.ceil(NEAR_MS / per_ms) + burst - 1)


# --- Keys ---------------------------------------------------------------------------------------------


def fields_of(template: str) -> list[str]:
    """The parameters that a key such as `customer:{id}` names. Plain names: no attributes, indexes or formats."""
    try:
        parts = list(Formatter().parse(template))
    except (ValueError, TypeError) as exc:
        raise SettingError(f"concurrency={template!r:.60}: {exc}; write {{{{ and }}}} for braces") from exc
    fields = [(name, spec, conversion) for _, name, spec, conversion in parts if name is not None]
    for name, spec, conversion in fields:
        if not name.isidentifier() or spec or conversion:
            raise SettingError(f"concurrency={template!r:.60}: use plain parameter names in braces, such as {{id}}")
    return [name for name, _, _ in fields]


def place_free_in_s(mean_run_s: float, before_it: int) -> float:
    """When to try again what found no room to wait for its place, with so many before it."""
    return min(max(0.25, mean_run_s * before_it), 5.0)


def key_of(template: str, arguments: Mapping[str, object]) -> str:
    """The key of one task. A long one is cut, and stays its own by its hash."""
    key = template.format_map({name: str(value) for name, value in arguments.items()})
    if len(key) <= MAX_KEY_CHARS:
        return key
    return f"{key[: MAX_KEY_CHARS // 2]}…{hashlib.sha256(key.encode(errors='surrogatepass')).hexdigest()}"
