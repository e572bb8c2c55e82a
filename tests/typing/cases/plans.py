"""What a type checker sees of plans: a step gives what its action does, and an error wherever one is ignored."""

from typing import Any, assert_type

from canoa import Canoa, Context, Handle
from canoa.plan import InputRef, Plan, StepRef

app = Canoa("continuum")


@app.action
async def fetch_data(url: str) -> dict[str, float]:
    return {url: 1.0}


@app.action(timeout=5)
def power_factor(ctx: Context, data: dict[str, float]) -> float:
    return sum(data.values())


@app.action
async def report(pf: float, data: dict[str, float]) -> str:
    return f"{pf} {data}"


def building() -> None:
    plan = app.plan("power-factor")
    assert_type(plan, Plan)
    assert_type(plan.input["url"], InputRef)

    data = plan.step(fetch_data, url=plan.input["url"])
    pf = plan.step(power_factor, data, timeout=2.5, retry=1)
    told = plan.step(report, pf, data, name="told", after=[data])
    other = plan.step("actions.fetch_data", url="http://sensor", after=told)

    assert_type(data, StepRef[dict[str, float]])
    assert_type(pf, StepRef[float])
    assert_type(told, StepRef[str])
    assert_type(other, StepRef[Any])
    assert_type(data["values"], StepRef[Any])
    plan.output(told)


def wrong(plan: Plan, ref: StepRef[float]) -> StepRef[str]:
    plan.step(3)  # type: ignore[call-overload]
    plan.step(fetch_data, "a", timeout="5")  # type: ignore[call-overload]
    plan.step(fetch_data, "a", after=["fetch"])  # type: ignore[list-item]
    plan.output("report")  # type: ignore[arg-type]
    ref[0]  # type: ignore[index]
    return ref  # type: ignore[return-value]


async def submitting(plan: Plan) -> None:
    assert_type(await plan.submit(url="http://sensor"), Handle[Any])
    assert_type(await plan.using(idempotency_key="k").submit(), Handle[Any])
    await plan.submit({"url": "http://sensor"})  # type: ignore[call-arg]
    plan.using(result="later")  # type: ignore[arg-type]
