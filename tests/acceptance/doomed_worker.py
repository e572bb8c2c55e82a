"""`canoa worker` that kills itself, with SIGKILL, instead of sending its first answer: the work is done, nobody knows.

python -m tests.acceptance.doomed_worker <arguments of `canoa worker`>
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from canoa.cli import main
from canoa.worker.answer_way import BrokerWay


def _die(self: BrokerWay, message: Any, on_outcome: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    BrokerWay.send = _die  # type: ignore[method-assign]
    sys.argv.insert(1, "worker")
    main()
