"""A manager, two nodes and a plan in one file. Over RabbitMQ: CANOA_BROKER=amqp://… CANOA_STORE=sqlite:///plant.db"""

import asyncio

from canoa import Canoa, Layer, Placement

app = Canoa("plant")


@app.action(retry=3, placement=Placement(layers=(Layer.EDGE,)))
async def read(meter: str) -> dict[str, float]:
    return {"active": 92.0, "apparent": 100.0}


@app.action(placement=Placement(layers=(Layer.CLOUD,)))
def factor(active: float, apparent: float) -> float:
    return active / apparent


plan = app.plan("power-factor")
data = plan.step(read, plan.input["meter"])
plan.step(factor, data["active"], data["apparent"])


async def main() -> None:
    async with (
        app,
        app.manager() as manager,
        app.worker(node_id="gateway", layer=Layer.EDGE),
        app.worker(node_id="office", layer=Layer.CLOUD),
    ):
        handle = await plan.submit(meter="pump 3")
        print("the plan gave", await handle.result())
        for step in (await manager.story(handle.id)).steps:
            print(f"{step.name} ran on {step.node_id}")
        print("the action gave", await factor.using(dispatch="routed").call(45.0, 50.0))


if __name__ == "__main__":
    asyncio.run(main())
