"""What nodes of different speed run: the same action once for every way to choose a node, and once for none."""

from __future__ import annotations

import asyncio
import os
from typing import Final

from canoa import Canoa
from canoa.vocabulary import Routing

PACE: Final = "TEST_PACE_S"
"""Seconds that an attempt takes at this node. Nothing is computed: how busy the machine is counts for little."""

OF_MANAGER: Final = "as_the_manager_says"

app = Canoa("plant")


async def work() -> None:
    await asyncio.sleep(float(os.environ[PACE]))


for routing in Routing:
    app.action(name=routing.value, routing=routing, timeout=20)(work)

app.action(name=OF_MANAGER, timeout=20)(work)
