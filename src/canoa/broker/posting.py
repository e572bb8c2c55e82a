"""Sending what others wrote: the protocol may be unable to carry it on, and that is an outcome like every other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from canoa.errors import Unroutable, WrongUse

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.port import Broker, Publication, PublishOutcome


def post(
    broker: Broker, publication: Publication, on_outcome: Callable[[PublishOutcome], None], *, later: bool = False
) -> None:
    """As `Broker.post`, with a plain `WrongUse` as the outcome where that would raise: foreign headers and ours
    together may not fit into a frame."""
    try:
        broker.post(publication, on_outcome, later=later)
    except ValueError as exc:
        asyncio.get_running_loop().call_soon(on_outcome, WrongUse(f"it cannot be sent: {exc}"))


def is_hopeless(outcome: PublishOutcome) -> bool:
    """Whether sending the same again would fail the same way. What a permission can mend is not."""
    return isinstance(outcome, Unroutable) or type(outcome) is WrongUse


def after_trouble(trouble: PublishOutcome, outcome: PublishOutcome) -> PublishOutcome:
    """What is to be told of one way and those before it: what may pass on one of them is worth another try, whatever
    the others say."""
    return outcome if outcome is None or trouble is None or is_hopeless(trouble) else trouble
