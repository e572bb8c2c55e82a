"""How a connection or a channel ends. Inside `broker/amqp` only: the adapter translates them for everyone else."""

from __future__ import annotations


class AmqpError(Exception):
    """Something ended: a request, a channel or the connection."""


class ProtocolError(AmqpError):
    """The other side does not speak AMQP 0-9-1 as agreed. The connection cannot go on."""


class SetupMismatch(ProtocolError):
    """TLS or not, which certificates, which way to log in: we and the broker are not set up for each other."""


class LinkLost(AmqpError):
    """The connection is gone without a word: cut, silent, or never made."""


class CertificateOutOfDate(LinkLost):
    """The broker's certificate is not valid now. It was not our setting, and it passes once it is renewed."""


class ClosedByBroker(AmqpError):
    """The broker closed the channel or the connection and said why."""

    def __init__(self, code: int, text: str, *, whole_connection: bool) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text
        self.whole_connection = whole_connection


class ClosedByUs(AmqpError):
    """We closed it; whoever still waited gets this."""


ACCESS_REFUSED = 403
NOT_FOUND = 404
NOT_ALLOWED = 530
