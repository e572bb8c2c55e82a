"""`canoa worker` that kills itself, with SIGKILL, instead of sending its first answer: the work is done, nobody knows.

python -m tests.acceptance.doomed_worker <arguments of `canoa worker`>
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from canoa.cli import main
from canoa.wire import sapparchi
from canoa.worker.answer_way import BrokerWay
from canoa.worker.uplinks.mqtt import MqttUplink

if TYPE_CHECKING:
    from canoa.broker.port import Message


def _dying(cls: type[BrokerWay | MqttUplink]) -> None:
    send = cls.send

    def send_or_die(self: Any, message: Message, on_outcome: Any) -> None:
        if sapparchi.CANARY_PREFIX.encode() in message.body:  # which is no work
            send(self, message, on_outcome)
        else:
            os.kill(os.getpid(), signal.SIGKILL)

    cls.send = send_or_die  # type: ignore[method-assign]


if __name__ == "__main__":
    _dying(BrokerWay)
    _dying(MqttUplink)
    sys.argv.insert(1, "worker")
    main()
