"""What a manager tells while tasks run: events for whoever looks on, figures for Prometheus."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prometheus_client import generate_latest
from tests.integration.dispatch.site import eventually

if TYPE_CHECKING:
    from tests.integration.dispatch.site import Site

    from canoa.recorder.views import Event


async def test_whoever_listens_hears_each_step_of_a_task_in_order(memory_site: Site) -> None:
    manager = await memory_site.start_manager()
    await memory_site.start_node("gw-1", manager, inc=lambda value: value + 1)
    told: list[Event] = []

    async def listen() -> None:
        async for event in manager.desk.events(task_id="order-7"):
            told.append(event)
            if event.kind == "ended":
                return

    listening = asyncio.create_task(listen())
    await asyncio.sleep(0)  # it listens
    await memory_site.request("inc", "inc", data=1, task_id="twice", request_id="order-7")
    await asyncio.wait_for(listening, 10)

    assert [(event.kind, event.step, event.node_id, event.outcome) for event in told] == [
        ("accepted", None, None, None),
        ("step_sent", "inc", "gw-1", None),
        ("step_ended", "inc", "gw-1", "ok"),
        ("step_sent", "inc-2", "gw-1", None),
        ("step_ended", "inc-2", "gw-1", "ok"),
        ("ended", None, None, "ok"),
    ]
    assert {event.action for event in told} == {"twice"}


async def test_figures_say_how_tasks_went_and_how_nodes_are(memory_site: Site) -> None:
    manager = await memory_site.start_manager()
    await memory_site.start_node("gw-1", manager, inc=lambda value: value + 1)
    await memory_site.result(await memory_site.request("inc", data=1))
    await memory_site.failure(await memory_site.request("ink"))

    def text() -> str:
        return generate_latest(manager.manager.registry).decode()

    for figure in (
        'canoa_routed_tasks_total{outcome="ok"} 1.0',
        'canoa_routed_tasks_total{outcome="refused"} 1.0',
        'canoa_requests_refused_total{reason="unknown_action"} 1.0',
        'canoa_step_results_total{verdict="taken"} 1.0',
    ):
        await eventually(lambda figure=figure: figure in text())  # type: ignore[misc]  # mypy does not see the default
    assert 'canoa_nodes{layer="CLOUD",state="OK"} 1.0' in text()
    assert "canoa_step_queue_seconds_count" in text()
