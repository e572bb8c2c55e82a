"""A step's placement: written in a plan file or in Python, read back the same, refused where it cannot be."""

from __future__ import annotations

import pytest

from canoa import Canoa, Layer, Placement, PlanRefused
from canoa.execution.plan_reading import plan_from_document
from canoa.execution.plan_writing import document

WRITTEN = {
    "layers": ["EDGE", "FOG"],
    "labels": {"gpu": "yes"},
    "spill_queue": 10.0,
    "spill_p95_s": 2.5,
    "near": "prefer",
}


def test_a_placement_in_a_plan_file_is_read_and_written_the_same() -> None:
    said = {"plan": "look", "steps": {"look": {"action": "plant.look", "placement": WRITTEN}}}

    plan = plan_from_document(said)

    placement = plan.steps[0].placement
    assert placement is not None
    assert placement.layers == (Layer.EDGE, Layer.FOG)
    assert placement.labels == {"gpu": "yes"}
    assert document(plan) == said
    assert plan_from_document(document(plan)) == plan


@pytest.mark.parametrize(
    ("wrong", "says"), [({"layers": ["sky"]}, "sky"), ({"layer": ["EDGE"]}, "layers"), ([], "layers")]
)
def test_a_placement_that_cannot_be_is_refused_with_its_step(wrong: object, says: str) -> None:
    said = {"plan": "look", "steps": {"look": {"action": "plant.look", "placement": wrong}}}

    with pytest.raises(PlanRefused, match=f"step 'look': .*{says}"):
        plan_from_document(said)


def test_a_step_in_python_says_where_it_may_run() -> None:
    app = Canoa("plant")

    @app.action(placement=Placement(layers=(Layer.EDGE,)))
    def look(image: str) -> str:
        return image

    plan = app.plan("look")
    plan.step(look, plan.input["image"], placement=Placement(layers=(Layer.CLOUD,)))

    placement = plan.build().steps[0].placement
    assert placement is not None
    assert placement.layers == (Layer.CLOUD,)
    assert look.policy.placement is not None
    assert look.policy.placement.layers == (Layer.EDGE,)
