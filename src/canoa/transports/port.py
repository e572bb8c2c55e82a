"""What a manager needs of a way to nodes. AMQP, MQTT and HTTP are three; which of them a node gets is in `ways.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.broker.port import Message, PublishOutcome
    from canoa.store.routed_port import NodeRow

OnSent: TypeAlias = Callable[[range, "PublishOutcome"], None]
"""How it went with the messages at those places of what was posted. Every place is told once. None: the node has them,
or a broker that keeps them for it. `Unroutable`: nobody takes anything for it there. `WrongUse`: this way cannot carry
the message. Anything else may be better the next time."""


class NodeTransport(Protocol):
    """One way to nodes. Safe for one event loop. Order holds per node as long as nothing has to be sent again."""

    @property
    def is_up(self) -> bool:
        """Whether what is posted now leaves now. Of one node's own troubles it knows nothing."""

    def may_reach(self, node: NodeRow) -> bool:
        """Whether anything may be sent to it by this way at all."""

    def post(self, node: NodeRow, messages: Sequence[Message], on_sent: OnSent) -> None:
        """Send now, hear later: `on_sent` is called from the event loop, never from inside `post`. Messages that the
        node may get as one (`takes_bundles`) may leave as one."""


@runtime_checkable
class SeenTransport(NodeTransport, Protocol):
    """One where anybody can look who is there. At a topic, nobody can."""

    async def listeners(self, node: NodeRow) -> int | None:
        """How many take what is sent there; None: nothing is there that would keep it."""
