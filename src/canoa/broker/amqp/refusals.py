"""What a broker's no means: try again, or never; and which of Canoa's errors says so to everyone else."""

from __future__ import annotations

from typing import Final

from canoa.broker.amqp.errors import (
    ACCESS_REFUSED,
    NOT_ALLOWED,
    NOT_FOUND,
    AmqpError,
    ClosedByBroker,
    LinkLost,
    SetupMismatch,
)
from canoa.errors import (
    BrokerRefusedLogin,
    BrokerRefusedOperation,
    BrokerUnreachable,
    CanoaError,
    DeclarationDiffers,
    SettingError,
)

RESOURCE_LOCKED: Final = 405
PRECONDITION_FAILED: Final = 406


def refuses_login(error: AmqpError) -> bool:
    """The broker heard us and said no: wrong credentials, or no such virtual host or no right to it."""
    return isinstance(error, ClosedByBroker) and error.whole_connection and error.code in (ACCESS_REFUSED, NOT_ALLOWED)


def lacks_queue(error: ClosedByBroker, queue: str) -> bool:
    """The same code also stands for a queue whose node is away, which is not missing at all."""
    return error.code == NOT_FOUND and f"no queue '{queue}'" in error.text


def may_pass(error: ClosedByBroker) -> bool:
    """The exclusive queue still belongs to our last connection, whose end the broker has not noticed yet; or the queue
    exists and its node is away."""
    return error.code == RESOURCE_LOCKED or (error.code == NOT_FOUND and "down or inaccessible" in error.text)


def translated(error: AmqpError) -> CanoaError:
    """Our errors stop at the adapter: what the rest of Canoa hears instead."""
    if isinstance(error, ClosedByBroker):
        if refuses_login(error):
            return BrokerRefusedLogin(
                f"the broker refuses the login: {error.text}; check user, password and virtual host"
            )
        if not error.whole_connection:
            # The same code stands for much else, such as a delivery that was held for too long.
            differs = error.code == PRECONDITION_FAILED and "inequivalent arg" in error.text
            refused = DeclarationDiffers if differs else BrokerRefusedOperation
            return refused(f"the broker refuses: {error.text}")
    if isinstance(error, SetupMismatch):
        return SettingError(f"no link to the broker: {error}")
    if isinstance(error, LinkLost):
        return BrokerUnreachable(f"no link to the broker: {error}")
    return BrokerUnreachable(f"the link to the broker ended: {error}")
