import asyncio

from canoa import Canoa

app = Canoa("shop")


@app.action(timeout=5, retry=3)
async def resize(path: str, *, width: int = 100) -> str:
    return f"{path} is {width} wide"


async def main() -> None:
    async with app, app.worker():
        print([line async for line in resize.map(["a.png", "b.png"])])


if __name__ == "__main__":
    asyncio.run(main())
