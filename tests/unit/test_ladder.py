"""What waits in the broker comes back in time: never later than the shortest rung, and in few steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.broker import ladder
from canoa.broker.port import Message
from canoa.broker.topology import RUNGS_S

MESSAGE = Message(body=b"", message_id="a")


@given(st.floats(0.001, 1e6))
def test_no_rung_overshoots_but_the_shortest(wait_s: float) -> None:
    rung_s = ladder.rung_before_s(wait_s)

    assert rung_s in RUNGS_S
    assert rung_s <= wait_s or rung_s == RUNGS_S[0]
    assert not any(rung_s < other_s <= wait_s for other_s in RUNGS_S)


@given(st.floats(0.001, 3600))
def test_any_wait_up_to_an_hour_ends_in_few_steps_and_at_most_a_tenth_of_a_second_late(wait_s: float) -> None:
    left_s, steps = wait_s, 0
    while left_s > 0:
        left_s -= ladder.rung_before_s(left_s)
        steps += 1

    assert -RUNGS_S[0] <= left_s
    assert steps <= 20


@pytest.mark.parametrize(
    ("wait_s", "exchange"), [(0.0, ""), (-5, ""), (0.01, "canoa.retry.100ms"), (7, "canoa.retry.5000ms")]
)
def test_a_message_goes_straight_to_its_queue_or_to_a_rung_that_leads_there(wait_s: float, exchange: str) -> None:
    publication = ladder.towards("canoa.action.shop.resize", MESSAGE, wait_s)

    assert (publication.exchange, publication.key) == (exchange, "canoa.action.shop.resize")
    assert publication.mandatory
