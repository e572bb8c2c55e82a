"""A small app: three actions, three ways to run. `make up` serves it."""

import asyncio
import hashlib
import time

from canoa import Canoa, Context

app = Canoa("shop")


@app.action(timeout=5, retry=3)
async def resize(path: str, *, width: int = 100) -> str:
    """Waits like a call to another service would: runs on the event loop."""
    await asyncio.sleep(0.01)
    return f"{path.removesuffix('.png')}-{width}.png"


@app.action()
def receipt(ctx: Context, order: int, *, lines: list[str]) -> dict[str, object]:
    """A plain function: runs in a thread."""
    ctx.logger.info("receipt_printed", order=order)
    return {"order": order, "lines": len(lines), "at": time.strftime("%H:%M")}


@app.action(cpu=True, timeout=60)
def fingerprint(text: str, *, rounds: int = 200_000) -> str:
    """Computes: runs in a process of its own."""
    return hashlib.pbkdf2_hmac("sha256", text.encode(), b"shop", rounds).hex()
