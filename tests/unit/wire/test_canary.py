"""A canary is a message as published, nobody's attempt, and answered to whom it may concern."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.broker import topology
from canoa.wire import canary, sapparchi
from canoa.wire.sapparchi import NodeMessage

NODE_IDS = st.from_regex(r"[A-Za-z0-9_.:/-]{1,128}", fullmatch=True)


@given(node_id=NODE_IDS, nonce=st.binary(min_size=8, max_size=8).map(bytes.hex))
def test_its_id_says_whose_it_is_and_is_no_attempts(node_id: str, nonce: str) -> None:
    request_id = sapparchi.canary_id(node_id, nonce)

    assert sapparchi.canary_node(request_id) == node_id
    assert sapparchi.parse_request_id(request_id) is None


def test_it_is_a_message_as_published_that_does_not_last() -> None:
    message = canary.canary("gw-7", "canoa-canary:gw-7:cafe", reply_to="canoa.canary.m")

    assert message.body == (
        b'{"actionTo":"urn:sapparchi:Action:canoa.canary","requestID":"canoa-canary:gw-7:cafe","messageData":"{}"}'
    )
    assert message.headers == {"nodeId": "gw-7"}
    assert not message.persistent
    assert message.expiration_s == 20


@pytest.mark.parametrize(
    ("reply_to", "exchange", "key"),
    [
        ("canoa.canary.m", "", "canoa.canary.m"),
        (None, topology.AMQ_TOPIC, topology.STEP_RESULTS),
        ("orders", topology.AMQ_TOPIC, topology.STEP_RESULTS),
    ],
)
def test_it_is_answered_to_a_managers_queue_or_by_the_way_of_all_answers(
    reply_to: str | None, exchange: str, key: str
) -> None:
    asked = NodeMessage(action_to=sapparchi.CANARY, request_id="canoa-canary:gw-7:cafe")

    answer = canary.answer(asked, "gw-7", reply_to=reply_to)

    assert (answer.exchange, answer.key) == (exchange, key)
    assert sapparchi.decode(answer.message.body, NodeMessage) == asked
