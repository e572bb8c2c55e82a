"""The app of everything in one process: memory broker, one action."""

from __future__ import annotations

from canoa import Canoa

app = Canoa("bench", broker="memory://")


@app.action()
async def resize(path: str, width: int = 100) -> str:
    return f"{path}-{width}"
