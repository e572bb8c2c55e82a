"""Not more often than so: the first at once, the others as one, a while after the last. Pure: times are arguments."""

from __future__ import annotations

from typing import Generic, TypeVar

Key = TypeVar("Key")


class Pacer(Generic[Key]):
    """Per key at most once in `every_s`, and at least once after the last wish. Keeps what is newer than that only."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._last_s: dict[Key, float] = {}  # the oldest first
        self._wanted: set[Key] = set()

    def want(self, key: Key, now_s: float) -> bool:
        """True: now. False: `due` will give it."""
        last_s = self._last_s.get(key)
        if last_s is not None and now_s < last_s + self._every_s:
            self._wanted.add(key)
            return False
        self._done(key, now_s)
        return True

    def due(self, now_s: float) -> list[Key]:
        """Those whose turn has come, each once."""
        over = []
        for key, last_s in self._last_s.items():
            if now_s < last_s + self._every_s:
                break
            over.append(key)
        for key in over:
            del self._last_s[key]
        wanted = [key for key in over if key in self._wanted]
        for key in wanted:
            self._done(key, now_s)
        return wanted

    def next_s(self) -> float | None:
        """When to look again; None: nothing is left to be done or forgotten."""
        oldest_s = next(iter(self._last_s.values()), None)
        return None if oldest_s is None else oldest_s + self._every_s

    def _done(self, key: Key, now_s: float) -> None:
        self._wanted.discard(key)
        self._last_s.pop(key, None)
        self._last_s[key] = now_s
