"""Messages without an id that no worker can read: each is a dead letter of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.keep.keeping import eventually
from tests.integration.pool.pool import opened

from canoa.broker import topology
from canoa.broker.port import Message, Publication

if TYPE_CHECKING:
    from tests.integration.keep.keeping import Keeping


async def test_messages_without_an_id_that_a_worker_refuses_do_not_replace_each_other(keeping: Keeping) -> None:
    @keeping.app.action()
    async def buy() -> None: ...

    await keeping.start()
    queue = topology.action_queue_name("shop.buy")
    async with opened(keeping.app) as raw:
        for number in range(3):
            nameless = Message(body=b"%d" % number)
            await raw.publish(Publication(message=nameless, key=queue, mandatory=False))

    async def are_kept() -> bool:
        return len((await keeping.desk.dead()).letters) == 3

    await eventually(are_kept)
