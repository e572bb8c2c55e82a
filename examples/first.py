import asyncio

from canoa import Canoa

app = Canoa("shop")


@app.action(timeout=5, retry=3)
async def resize(path: str, *, width: int = 100) -> str:
    return f"{path} is {width} wide"


async def main() -> None:
    async with app, app.worker():
        print(await resize.call("a.png", width=80))
        print([line async for line in resize.map(["b.png", "c.png"])])


asyncio.run(main())
