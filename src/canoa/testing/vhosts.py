"""Virtual hosts in supply: one command to the broker makes several, and deletes those that are done with.

One command per test would cost more than most tests: through `rabbitmqctl` it takes a second before it does anything.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_BATCH = 4
"""Each takes its share of the broker's time as long as it exists, used or not: with thirty, 2 % of a core."""

# One term that both RabbitMQ 3.10 and 4.x understand. To say it twice does no harm.
_EXPRESSION = """
[rabbit_vhost:delete(V, <<"canoa">>) || V <- [{released}]],
[begin
   ok = rabbit_vhost:add(V, <<"canoa">>),
   ok = rabbit_auth_backend_internal:set_permissions(<<"guest">>, V, <<".*">>, <<".*">>, <<".*">>, <<"canoa">>)
 end || V <- [{wanted}]],
ok.
"""


class VhostPool:
    """Empty virtual hosts on one broker. `evaluate` has it do what an Erlang expression says."""

    def __init__(self, evaluate: Callable[[str], None]) -> None:
        self._evaluate = evaluate
        self._ready: deque[str] = deque()
        self._released: list[str] = []
        self._numbers = itertools.count(1)
        self._prefix = f"test-{secrets.token_hex(3)}"  # another run may have left some in the same folder
        self._lock = threading.Lock()

    def take(self) -> str:
        with self._lock:
            if not self._ready:
                self._refill()
            return self._ready.popleft()

    def release(self, name: str) -> None:
        with self._lock:
            self._released.append(name)

    def _refill(self) -> None:
        wanted = [f"{self._prefix}-{next(self._numbers)}" for _ in range(_BATCH)]
        self._evaluate(_EXPRESSION.format(released=_binaries(self._released), wanted=_binaries(wanted)))
        self._released.clear()
        self._ready.extend(wanted)


def _binaries(names: Sequence[str]) -> str:
    return ", ".join(f'<<"{name}">>' for name in names)
