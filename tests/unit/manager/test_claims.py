"""What a registration says is checked before it is believed."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.manager.words import PRICE, RESIZE, claimed, registration

from canoa.broker.port import Message
from canoa.manager.claims import Claim, Reason, Refused, read_claim
from canoa.vocabulary import Layer
from canoa.wire import sapparchi
from canoa.wire.sapparchi import ActionLimits


def refusal(message: Message) -> Reason:
    refused = read_claim(message)
    assert isinstance(refused, Refused)
    return refused.reason


def test_a_published_registration_is_believed_as_it_is() -> None:
    row = claimed("gw-7", layer="EDGE", type="ESP32")

    assert (row.node_id, row.layer, row.type, row.actions) == ("gw-7", Layer.EDGE, "ESP32", (RESIZE,))


def test_a_node_without_id_is_known_by_its_endpoint() -> None:
    row = claimed("", endpoint="http://127.0.0.9:8080")

    assert (row.node_id, row.protocol) == ("http://127.0.0.9:8080", "HTTP")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message(body=b" " * (sapparchi.MAX_REGISTRATION_BYTES + 1)), Reason.OVERSIZED),
        (Message(body=b"{"), Reason.MALFORMED),
        (Message(body=b"[]"), Reason.MALFORMED),
        (Message(body=b"\xff\xfe"), Reason.MALFORMED),
        (Message(body=b"[" * 100_000), Reason.MALFORMED),
        (registration(layer="MOON"), Reason.MALFORMED),
        (registration(actions=["urn:sapparchi:Action:a.b"] * 2001), Reason.MALFORMED),
        (registration(type="x\x00y"), Reason.MALFORMED),
        (registration("gw 7"), Reason.NODE_ID),
        (registration("gw\n7"), Reason.NODE_ID),
        (registration("#"), Reason.NODE_ID),
        (registration("", endpoint=""), Reason.NODE_ID),
        (registration("", endpoint="http://x/<script>"), Reason.NODE_ID),
        (registration(actions=["urn:sapparchi:Action:sh op.*", "drop table"]), Reason.ACTIONS),
    ],
)
def test_what_cannot_be_a_registration_is_refused_with_its_reason(message: Message, reason: Reason) -> None:
    assert refusal(message) is reason


@pytest.mark.parametrize("said", [{"type": None}, {"endpoint": None}, {"forceRegister": None}])
def test_what_canoa_can_do_without_may_be_nothing(said: dict[str, Any]) -> None:
    assert claimed(**said).node_id == "gw-7"


def test_a_node_may_say_outright_that_it_has_no_id() -> None:
    assert claimed(None, endpoint="http://127.0.0.9").protocol == "HTTP"  # type: ignore[arg-type]


@pytest.mark.parametrize("encoding", ["utf-8", "UTF-8", "identity", "gzip"])
def test_a_body_is_read_as_its_content_encoding_says(encoding: str) -> None:
    plain = registration()
    body = gzip.compress(plain.body) if encoding == "gzip" else plain.body

    assert isinstance(read_claim(Message(body=body, content_encoding=encoding)), Claim)


def test_strange_actions_beside_good_ones_are_left_out() -> None:
    claim = read_claim(registration(actions=["urn:sapparchi:Action:shop.resize", "urn:sapparchi:Action:a b.c"]))

    assert isinstance(claim, Claim)
    assert (claim.row.actions, claim.strange) == ((RESIZE,), 1)


def test_the_same_action_named_twice_is_not_strange() -> None:
    claim = read_claim(registration(actions=["urn:sapparchi:Action:shop.resize"] * 2))

    assert isinstance(claim, Claim)
    assert (claim.row.actions, claim.strange) == ((RESIZE,), 0)


@pytest.mark.parametrize(
    ("name", "headers", "protocol"),
    [("gw-7", {}, "AMQP"), ("gw-7", {sapparchi.BY_MQTT: 1}, "MQTT"), (None, {sapparchi.BY_MQTT: 1}, "HTTP")],
)
def test_a_node_is_reached_where_it_spoke(name: Any, headers: dict[str, Any], protocol: str) -> None:
    claim = read_claim(registration(name, headers=headers))

    assert isinstance(claim, Claim)
    assert claim.row.protocol == protocol


@pytest.mark.parametrize(
    ("by", "ways"),
    [
        ({}, ("AMQP", "MQTT-UNHEARD", "HTTP")),
        ({sapparchi.BY_MQTT: 1}, ("AMQP", "MQTT", "HTTP")),
        ({sapparchi.BY_MQTT_LINK: True}, ("AMQP", "MQTT-LINK", "HTTP")),
        ({sapparchi.BY_HTTP: True}, ("AMQP", "MQTT-UNHEARD", "HTTP")),
    ],
)
def test_a_node_says_which_ways_it_has_and_where_its_topic_is_shows_by_where_it_spoke(
    by: dict[str, Any], ways: tuple[str, ...]
) -> None:
    row = claimed(headers={sapparchi.WAYS: "HTTP, MQTT,AMQP,PIGEON"} | by)

    assert (row.all_ways, row.closed, row.protocol) == (ways, (), "AMQP")


@pytest.mark.parametrize(("layer", "protocol"), [("FOG", "MQTT"), ("CLOUD", "MQTT"), ("EDGE", "MQTT")])
def test_the_preferred_way_is_the_first_of_its_layer_that_is_open(layer: str, protocol: str) -> None:
    headers = {sapparchi.WAYS: "AMQP,MQTT,HTTP", sapparchi.CLOSED: "AMQP", sapparchi.BY_MQTT: 1}

    assert claimed(layer=layer, headers=headers).protocol == protocol
    assert claimed(layer=layer, headers=headers | {sapparchi.CLOSED: "AMQP,MQTT"}).protocol == "HTTP"


def test_a_topic_that_was_not_heard_is_not_preferred() -> None:
    row = claimed(layer="EDGE", headers={sapparchi.WAYS: "MQTT,HTTP", sapparchi.BY_HTTP: True})

    assert (row.all_ways, row.protocol) == (("MQTT-UNHEARD", "HTTP"), "HTTP")


@pytest.mark.parametrize(("said", "link"), [({}, 0), (3, 3), (-1, 0), (2**40, 0), (True, 0), ("3", 0)])
def test_a_header_says_which_of_its_mqtt_links_it_has(said: Any, link: int) -> None:
    assert claimed(headers={sapparchi.LINK: said} if said != {} else {}).link == link


def test_headers_say_site_instance_limits_labels_and_load() -> None:
    limits = json.dumps({"urn:sapparchi:Action:shop.resize": {"timeout": 5000, "retry": 1}})
    labels = json.dumps({"gpu": "yes"})
    said = {sapparchi.SITE: "natal", sapparchi.LIMITS: limits, sapparchi.LOAD: 0.5, sapparchi.LABELS: labels}

    claim = read_claim(registration(instance="i1", headers=said))

    assert isinstance(claim, Claim)
    row = claim.row
    assert (row.site, row.instance, row.load) == ("natal", "i1", 0.5)
    assert row.limits == {RESIZE: ActionLimits(timeout=5000, retry=1)}
    assert row.labels == {"gpu": "yes"}


def test_headers_say_whether_canaries_are_answered_and_how_long_it_may_be_cut_off() -> None:
    claim = read_claim(registration(headers={sapparchi.CANARIES: True, sapparchi.GRACE: 3600}))

    assert isinstance(claim, Claim)
    assert (claim.row.takes_canaries, claim.row.grace_s) == (True, 3600)


@pytest.mark.parametrize("grace", ["soon", -1, 1e12, float("nan"), None])
def test_a_grace_that_makes_no_sense_is_as_if_not_said(grace: Any) -> None:
    claim = read_claim(registration(headers={sapparchi.CANARIES: "yes", sapparchi.GRACE: grace}))

    assert isinstance(claim, Claim)
    assert (claim.row.takes_canaries, claim.row.grace_s) == (False, None)


@pytest.mark.parametrize("labels", ["{", '{"gpu": 1}', '{"": "x"}', json.dumps({"x": "y" * 64}), "[]", 7])
def test_labels_that_make_no_sense_are_as_if_not_said(labels: Any) -> None:
    claim = read_claim(registration(headers={sapparchi.LABELS: labels}))

    assert isinstance(claim, Claim)
    assert claim.row.labels == {}


@pytest.mark.parametrize(
    "placement", [{"layers": ["SKY"]}, {"spill_queue": -1}, {"labels": {"": "x"}}, {"layers": ["EDGE", "EDGE"]}, 7]
)
def test_a_placement_that_makes_no_sense_is_as_if_not_said_and_no_other_action_s_fault(placement: object) -> None:
    limits = json.dumps({"shop.resize": {"placement": placement}, "shop.price": {"placement": {"layers": ["FOG"]}}})
    actions = ["urn:sapparchi:Action:shop.resize", "urn:sapparchi:Action:shop.price"]

    claim = read_claim(registration(headers={sapparchi.LIMITS: limits}, actions=actions))

    assert isinstance(claim, Claim)
    assert list(claim.row.limits) == [PRICE]


@pytest.mark.parametrize(
    "limits", ["{", '{"shop.resize":{"timeout":-1}}', '{"shop.resize":{"retry":-1}}', '{"shop.price":{}}', 7, None]
)
def test_limits_that_make_no_sense_are_as_if_not_said(limits: object) -> None:
    claim = read_claim(registration(headers={sapparchi.LIMITS: limits}))

    assert isinstance(claim, Claim)
    assert claim.row.limits == {}


@given(st.binary(max_size=300) | st.from_regex(rb'\{"nodeId":.{0,80}\}', fullmatch=True))
def test_no_body_breaks_the_reader(body: bytes) -> None:
    assert isinstance(read_claim(Message(body=body)), Claim | Refused)


@given(
    st.fixed_dictionaries(
        {"nodeId": st.text(max_size=140), "endpoint": st.text(max_size=20), "actions": st.lists(st.text(max_size=20))}
    )
)
def test_whatever_is_believed_has_an_id_that_queues_and_logs_can_carry(said: dict[str, object]) -> None:
    claim = read_claim(Message(body=json.dumps(said).encode()))

    if isinstance(claim, Claim):
        assert claim.row.node_id
        assert claim.row.node_id.isascii()
        assert claim.row.node_id.isprintable()


def test_a_fingerprint_changes_with_what_counts_and_with_nothing_else() -> None:
    urns = [f"urn:sapparchi:Action:{name}" for name in (RESIZE, PRICE)]
    first = claimed(actions=urns).fingerprint

    assert claimed(actions=urns[::-1], forceRegister=True).fingerprint == first
    assert claimed(actions=urns[:1]).fingerprint != first
    assert claimed(actions=urns, endpoint="http://127.0.0.8").fingerprint != first
    assert claimed(actions=urns, instance="i2").fingerprint != first
    assert claimed(actions=urns, headers={sapparchi.CLOSED: "AMQP"}).fingerprint != first


def test_a_node_says_which_encodings_it_reads_and_others_are_left_out() -> None:
    said = {sapparchi.ENCODINGS: "zstd, brotli,gzip"}

    assert claimed(headers=said).encodings == ("gzip", "zstd")
    assert claimed().encodings == ()
    assert claimed(headers={sapparchi.ENCODINGS: 7}).encodings == ()


@pytest.mark.parametrize(("said", "kept"), [("10MB/day", "10MB/day"), ("a lot", ""), (5, ""), ("10MB/day\n", "")])
def test_a_node_says_its_link_budget_and_nonsense_is_none(said: Any, kept: str) -> None:
    row = claimed(headers={sapparchi.LINK_BUDGET: said})

    assert row.link_budget == kept
    assert (row.fingerprint == claimed().fingerprint) == (not kept)
